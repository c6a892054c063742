"""A query that copies one topic into another, exactly once, until all records are copied.

The copy is a separate program, so that it runs with the version of klog that PYTHONPATH names:
``python copy_job.py SERVERS SOURCE TARGET CHECKPOINT``. For each line of stdin the program runs the
query once and prints COPIED. Only pyspark_klog's public API is used.
"""

import sys

from pyspark.sql import SparkSession

import pyspark_klog

COPIED = "copied"


def main(*arguments: str) -> None:
    """Run the query for each line of stdin, in a session of its own."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("a copy")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    pyspark_klog.register(spark)
    for _ in sys.stdin:
        copy(spark, *arguments)
        print(COPIED, flush=True)
    spark.stop()


def copy(spark: SparkSession, servers: str, source: str, target: str, checkpoint: str) -> None:
    """Run the query with what is in the topic now."""
    rows = (
        spark.readStream.format("klog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("klog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
