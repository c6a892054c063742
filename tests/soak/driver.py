"""A Spark driver that a soak starts and kills: ``python -m tests.soak.driver``.

serving.py handles its commands.
"""

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.serving import answers_alone, error_text, serve
from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class RecordingSink:
    """A foreachBatch sink: a line for each micro-batch, with the batch's id and its records.

    The line is written to the file before the micro-batch counts as done, so a killed driver loses
    none. The micro-batch ``hold`` never ends after it is recorded.
    """

    def __init__(self, file: Path, hold: int | None) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._hold = hold
        self.is_held = False

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Record one micro-batch."""
        columns = frame.selectExpr("partition", "offset", "bigint(string(key)) AS number")
        records = [tuple(row) for row in columns.collect()]
        os.write(self._file, json.dumps({"batch": batch_id, "records": records}).encode() + b"\n")
        if batch_id == self._hold:
            self.is_held = True
            threading.Event().wait()


class Driver:
    """The queries of this process."""

    def __init__(self) -> None:
        self._spark = spark_session()
        self._queries: dict[str, tuple[StreamingQuery, RecordingSink]] = {}

    def start(self, command: dict[str, Any]) -> dict[str, Any]:
        """Start a query, or run one to its end with the trigger AvailableNow."""
        frame = self._spark.readStream.format("klog").options(**command["options"]).load()
        sink = RecordingSink(Path(command["sink"]), command["hold"])
        writer = frame.writeStream.option("checkpointLocation", command["checkpoint"])
        writer = writer.foreachBatch(sink).trigger(**command["trigger"])
        self._queries[command["query"]] = writer.start(), sink
        return {}

    def status(self, command: dict[str, Any]) -> dict[str, Any]:
        """The state of a query: whether it runs, its error, whether its sink is held."""
        query, sink = self._queries[command["query"]]
        return {
            "active": query.isActive,
            "error": error_text(query.exception()),
            "held": sink.is_held,
        }

    def stop(self, command: dict[str, Any]) -> dict[str, Any]:
        """Stop a query."""
        self._queries.pop(command["query"])[0].stop()
        return {}


def main() -> None:
    """Serve commands until the input ends."""
    answers = answers_alone()
    driver = Driver()
    serve({"start": driver.start, "status": driver.status, "stop": driver.stop}, answers)


if __name__ == "__main__":
    main()
