"""A Spark Connect client for a Python without klog: run by its path, it imports pyspark alone.

``python -S -P connect_client.py`` with a JSON object on its standard input; prints one.
"""

import importlib.util
import json
import os
import sys
from typing import Any


def main() -> None:
    """Read, write and stream through ``format("klog")`` of the server."""
    given = json.load(sys.stdin)
    # Send everything that the environment prints to stderr: stdout carries the responses only.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    assert importlib.util.find_spec("pyspark_klog") is None, "this Python has klog"

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(given["remote"]).getOrCreate()
    servers = {"kafka.bootstrap.servers": given["servers"]}

    def numbers(topic: str) -> list[int]:
        frame = spark.read.format("klog").options(**servers).option("subscribe", topic).load()
        rows = frame.selectExpr("int(string(value)) AS n").collect()
        return sorted(row["n"] for row in rows)

    found: dict[str, Any] = {"session": type(spark).__module__, "read": numbers(given["source"])}

    rows = spark.range(5).selectExpr("string(id) AS key", "string(id) AS value")
    rows.write.format("klog").options(**servers, topic=given["written"]).mode("append").save()
    found["written"] = numbers(given["written"])

    frame = spark.readStream.format("klog").options(**servers).option("subscribe", given["source"])
    stream = frame.option("startingOffsets", "earliest").load().select("key", "value")
    writer = stream.writeStream.format("klog").options(**servers, topic=given["streamed"])
    writer = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True)
    query = writer.start()
    found["ended"] = query.awaitTermination(240)
    found["exception"] = None if query.exception() is None else str(query.exception())
    found["streamed"] = numbers(given["streamed"])

    def both(frame: Any, batch_id: int) -> None:
        # Runs in a Python of the server's.
        from pyspark_klog import batch_writer

        for name, topic in given["each"].items():
            sink = {"exactlyOnceName": name, "exactlyOnceQuery": "copies", "topic": topic}
            batch_writer(exactlyOnce=True, **sink, **servers)(frame, batch_id)

    frame = frame.option("maxOffsetsPerTrigger", 2).option("startingOffsets", "earliest")
    for first in (20, 30):
        more = spark.range(first, first + 3).selectExpr("string(id) AS value")
        more.write.format("klog").options(**servers, topic=given["source"]).mode("append").save()
        writer = frame.load().select("key", "value").writeStream.foreachBatch(both)
        writer = writer.option("checkpointLocation", given["checkpoint"] + "-each")
        query = writer.trigger(availableNow=True).start()
        ended = query.awaitTermination(240)
        found["each_ended"] = [ended, None if query.exception() is None else str(query.exception())]
    found["each"] = {name: numbers(topic) for name, topic in given["each"].items()}

    try:
        spark.read.format("klog").options(**servers).load().collect()
    except Exception as error:
        found["refused"] = str(error)
    print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
