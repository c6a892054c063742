"""Checkpoints of structured streaming as files, in the bytes of Spark's own Kafka connector."""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

Offsets = Mapping[str, Mapping[str, int]]

_CONF = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming"
    ".state.HDFSBackedStateStoreProvider",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.shuffle.partitions": "2",
}


def write_peers_checkpoint(
    folder: Path, initial: Offsets, ends: Sequence[Offsets], *, committed: int
) -> None:
    """Write the checkpoint of a query with one source, as Spark 4.2's own connector leaves it.

    ``ends`` are the ends of the batches, of which the first ``committed`` were committed.
    The texts, byte by byte, were recorded from Spark 4.2.0 with spark-sql-kafka-0-10 4.2.0.
    """
    _write(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}, separators=(",", ":")))
    # Spark's connector reads the initial offsets when a query restarts within batch 0. Spark writes
    # the leading zero byte for the sake of Spark 2.1.0 (SPARK-19517).
    _write(folder / "sources" / "0" / "0", f"\0v1\n{_text(initial)}")
    for number, end in enumerate(ends):
        head = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": _CONF}
        _write(folder / "offsets" / str(number), f"v1\n{_text(head)}\n{_text(end)}")
        if number < committed:
            _write(folder / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')


def offsets_of(folder: Path, batch_id: int) -> Offsets:
    """The end of a batch as the checkpoint has it, for a query with one source."""
    return json.loads((folder / "offsets" / str(batch_id)).read_text().splitlines()[2])


def initial_offsets_of(folder: Path) -> Offsets:
    """Return the offsets at which Spark's connector began, from its own file in the checkpoint."""
    return json.loads((folder / "sources" / "0" / "0").read_text().splitlines()[1])


def batches(folder: Path) -> tuple[list[int], list[int]]:
    """Return the numbers of the logged batches and the numbers of the committed batches."""
    return _numbers(folder / "offsets"), _numbers(folder / "commits")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
