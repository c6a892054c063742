"""Three Spark jobs around two topics: the part of the example to read and copy.

``write``  a batch job: every flight becomes a record, keyed by the aircraft's tail number
``stream`` a streaming job: flights come in, delays by origin and hour go out
``check``  a batch job: reads both topics back and compares them with the file

``python -m examples.flights.jobs JOB ... --servers HOST:PORT --folder DIR`` is a driver that runs
some of them, one after the other; each leaves its result in the folder, as JOB.json.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

FLIGHTS_TOPIC = "flights"
DELAYS_TOPIC = "delays"
FLIGHTS_PARTITIONS = 6
DELAYS_PARTITIONS = 3
OFFSETS_A_BATCH = 40_000

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string,
    dest string, air_time int, distance int, hour int, minute int, time_hour string
"""


def session(name: str) -> SparkSession:
    """A small local Spark that uses this Python for its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # ./dev has set it
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def flights_from_file(spark: SparkSession, folder: Path) -> DataFrame:
    """The file's rows as records: NA is null, so flights without a tail number have no key."""
    rows = spark.read.csv(str(folder / "flights.csv"), header=True, schema=SCHEMA, nullValue="NA")
    return rows.select(sf.col("tailnum").alias("key"), sf.to_json(sf.struct("*")).alias("value"))


def parsed(records: DataFrame) -> DataFrame:
    """The columns of a flight out of a record's value."""
    flight = sf.from_json(sf.col("value").cast("string"), SCHEMA).alias("flight")
    return records.select(flight).select("flight.*")


def delays(flights: DataFrame) -> DataFrame:
    """Departures by origin and hour. Delays that are not known stay out of the sums."""
    return flights.groupBy("origin", "hour").agg(
        sf.count("*").alias("flights"),
        sf.count("dep_delay").alias("departed"),
        sf.coalesce(sf.sum("dep_delay"), sf.lit(0)).alias("delay_sum"),
        sf.count_if(sf.col("dep_delay") > 15).alias("late"),
    )


def write(spark: SparkSession, servers: str, folder: Path) -> dict[str, Any]:
    """The file into the topic of flights."""
    started = time.monotonic()
    (
        flights_from_file(spark, folder)
        .write.format("klog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", FLIGHTS_TOPIC)
        .mode("append")
        .save()
    )
    return {"seconds": time.monotonic() - started}


def stream(spark: SparkSession, servers: str, folder: Path) -> dict[str, Any]:
    """Flights in, delays out, in batches of bounded size, until all that is there is done."""
    started = time.monotonic()
    flights = (
        spark.readStream.format("klog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", FLIGHTS_TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_A_BATCH)
        .load()
    )
    result = delays(parsed(flights)).select(
        sf.format_string("%s-%02d", "origin", "hour").alias("key"),
        sf.to_json(sf.struct("*")).alias("value"),
    )
    query = (
        result.writeStream.format("klog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", DELAYS_TOPIC)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = sum(progress.numInputRows for progress in query.recentProgress)
    return {"seconds": time.monotonic() - started, "rows": rows}


def check(spark: SparkSession, servers: str, folder: Path) -> dict[str, Any]:
    """Both topics against the file: the first record by record, the second by its last values."""
    started = time.monotonic()

    def topic(name: str) -> DataFrame:
        return (
            spark.read.format("klog")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", name)
            .load()
        )

    def as_text(records: DataFrame) -> DataFrame:
        return records.select(sf.col("key").cast("string"), sf.col("value").cast("string"))

    expected = flights_from_file(spark, folder)
    written = as_text(topic(FLIGHTS_TOPIC)).cache()
    count = written.count()
    read_seconds = time.monotonic() - started
    last = topic(DELAYS_TOPIC).groupBy("key").agg(sf.max_by("value", "offset").alias("value"))
    shape = "origin string, hour int, flights long, departed long, delay_sum long, late long"
    results = as_text(last).select(sf.from_json("value", shape).alias("row")).select("row.*")
    in_topic = [row.asDict() for row in results.orderBy("origin", "hour").collect()]
    in_file = [row.asDict() for row in delays(parsed(expected)).orderBy("origin", "hour").collect()]
    return {
        "expected": expected.count(),
        "count": count,
        "null_keys": written.where("key IS NULL").count(),
        "missing": expected.exceptAll(written).count(),
        "extra": written.exceptAll(expected).count(),
        "in_topic": in_topic,
        "in_file": in_file,
        "seconds": time.monotonic() - started,
        "read_seconds": read_seconds,
    }


JOBS: dict[str, Callable[[SparkSession, str, Path], dict[str, Any]]] = {
    "write": write,
    "stream": stream,
    "check": check,
}


def main() -> None:
    """Run some jobs in one driver."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+", choices=JOBS)
    parser.add_argument("--servers", required=True, help="host:port of a broker")
    parser.add_argument("--folder", required=True, type=Path, help="where flights.csv is")
    given = parser.parse_args()
    spark = session("flights")
    try:
        for job in given.jobs:
            result = JOBS[job](spark, given.servers, given.folder)
            unfinished = given.folder / f"{job}.json.part"
            unfinished.write_text(json.dumps(result), encoding="utf-8")
            unfinished.rename(given.folder / f"{job}.json")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
