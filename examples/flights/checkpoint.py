"""Reads a stream's checkpoint: the batches that were begun, those that are done, the offsets."""

import json
from pathlib import Path
from typing import NamedTuple

from pyspark_klog.ids import TopicPartition


class Checkpoint(NamedTuple):
    """Batch numbers, by Spark's two logs."""

    planned: tuple[int, ...]
    committed: tuple[int, ...]

    @property
    def has_uncommitted(self) -> bool:
        """Whether a batch was begun and is not done."""
        return bool(self.planned) and self.planned[-1] > (self.committed or (-1,))[-1]


def read_checkpoint(folder: Path) -> Checkpoint:
    """The batches in both logs."""
    return Checkpoint(_numbers(folder / "offsets"), _numbers(folder / "commits"))


def committed_offsets(folder: Path) -> dict[TopicPartition, int]:
    """How far the last batch that is done went; empty before the first."""
    committed = read_checkpoint(folder).committed
    if not committed:
        return {}
    # A version, a line about the batch, then one line for each source.
    lines = (folder / "offsets" / str(committed[-1])).read_text(encoding="utf-8").splitlines()
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in json.loads(lines[-1]).items()
        for number, offset in partitions.items()
    }


def _numbers(folder: Path) -> tuple[int, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()))
