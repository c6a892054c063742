"""A Spark driver with copies from topic to topics: ``python -m tests.soak.copy_driver``.

serving.py handles its commands; exactly_once.py sends them.
"""

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyspark_klog
from tests.soak.serving import answers_alone, error_text, serve
from tests.support.spark.session import OVERRIDES, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

SETTINGS_VARIABLE = "KLOG_SOAK_SPARK"
"""The environment variable with Spark's settings for the driver, as a JSON object."""


class CopyDriver:
    """The queries of this process."""

    def __init__(self) -> None:
        self._spark = spark_session()
        self._queries: dict[str, StreamingQuery] = {}

    def start(self, command: dict[str, Any]) -> dict[str, Any]:
        """Start a copy: with one sink by writeStream, with several sinks by foreachBatch.

        The copy by writeStream is split by key into as many tasks as there are cores. So a key's
        records stay in order, and a restart on another number of cores splits a micro-batch
        otherwise.
        """
        rows = self._spark.readStream.format("klog").options(**command["source"]).load()
        rows = rows.select("key", "value")
        sinks: list[dict[str, str]] = command["sinks"]
        if len(sinks) == 1:
            rows = rows.repartition(self._spark.sparkContext.defaultParallelism, "key")
            writer = rows.writeStream.format("klog").options(**sinks[0])
        else:
            writer = rows.writeStream.foreachBatch(_to_each(sinks))
        writer = writer.option("checkpointLocation", command["checkpoint"])
        # Without a pause the queries would take all cores from starting drivers and executors.
        writer = writer.trigger(processingTime=command["interval"])
        self._queries[command["query"]] = writer.start()
        return {}

    def status(self, command: dict[str, Any]) -> dict[str, Any]:
        """The error that a query has failed with, or None."""
        return {"error": error_text(self._queries[command["query"]].exception())}

    def stop(self, command: dict[str, Any]) -> dict[str, Any]:
        """Stop a query."""
        self._queries.pop(command["query"]).stop()
        return {}


def _to_each(sinks: list[dict[str, str]]) -> "Callable[[DataFrame, int], None]":
    writers = [pyspark_klog.batch_writer(**options) for options in sinks]

    def write(frame: "DataFrame", batch_id: int) -> None:
        for writer in writers:
            writer(frame, batch_id)

    return write


def main() -> None:
    """Serve commands until the input ends."""
    answers = answers_alone()
    OVERRIDES.update(json.loads(os.environ[SETTINGS_VARIABLE]))
    driver = CopyDriver()
    serve({"start": driver.start, "status": driver.status, "stop": driver.stop}, answers)


if __name__ == "__main__":
    main()
