"""A query of Spark's own connector in a process of its own, to be killed in the middle of a batch.

`python -m tests.support.parity.peer_query SERVERS TOPIC CHECKPOINT SEEN LIMIT STOP_AT` reads from
the earliest offsets, LIMIT records a batch. The values of batch N go to the file SEEN/N.json; batch
STOP_AT never ends: the file says that its offsets are logged, and its commit is not.
"""

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(arguments: list[str]) -> None:
    """Runs until it is killed."""
    servers, topic, checkpoint, seen, limit, stop_at = arguments

    def keep(frame: "DataFrame", batch_id: int) -> None:
        values = sorted(int(bytes(row.value)) for row in frame.collect())
        path = Path(seen) / f"{batch_id}.new"
        path.write_text(json.dumps(values), encoding="utf-8")
        path.rename(path.with_suffix(".json"))
        if batch_id == int(stop_at):
            threading.Event().wait()

    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": limit,
    }
    stream = spark_session().readStream.format("kafka").options(**options).load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
