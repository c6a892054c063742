"""A query's checkpoint on the disk: the planned and the completed micro-batches."""

import json
from dataclasses import dataclass
from pathlib import Path

Positions = dict[int, int]


@dataclass(frozen=True)
class Checkpoint:
    """The folder of a query that reads one topic."""

    folder: Path
    topic: str

    def commits(self) -> list[int]:
        """The numbers of the completed micro-batches."""
        folder = self.folder / "commits"
        return [int(file.name) for file in folder.glob("*") if file.name.isdecimal()]

    @property
    def last_batch(self) -> int:
        """The last completed micro-batch; -1: none."""
        return max(self.commits(), default=-1)

    @property
    def is_in_batch(self) -> bool:
        """Whether a micro-batch is planned, and not completed."""
        return (self.folder / "offsets" / str(self.last_batch + 1)).exists()

    def offsets(self, batch: int) -> Positions | None:
        """The end offsets of a micro-batch; None if it is not planned."""
        file = self.folder / "offsets" / str(batch)
        if not file.exists():
            return None
        found = json.loads(file.read_text(encoding="utf-8").splitlines()[-1]).get(self.topic, {})
        return {int(partition): offset for partition, offset in found.items()}

    def committed(self) -> Positions:
        """The end offsets of the last completed micro-batch."""
        return self.offsets(self.last_batch) or {} if self.last_batch >= 0 else {}
