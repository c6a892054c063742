"""TopicPartition and the special offsets."""

from __future__ import annotations

from operator import index
from typing import Any

from pyspark_klog.kafka._errors import KafkaError

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001


class TopicPartition:
    """A partition of a topic, with an offset where a call needs one.

    Equal and ordered by topic and partition alone. ``offset`` may be OFFSET_BEGINNING, OFFSET_END,
    OFFSET_STORED (the offset that the group has committed) or OFFSET_INVALID (none). ``error`` is
    set in the results of calls that can fail for one partition. ``leader_epoch`` is None if it is
    not known.
    """

    __slots__ = ("_offset", "_partition", "error", "leader_epoch", "metadata", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        # confluent_kafka's type hint is int, and programs for it must pass mypy.
        self.leader_epoch: Any = None if leader_epoch is None else index(leader_epoch)
        self.error: KafkaError | None = None

    @property
    def partition(self) -> int:
        """The partition; -1 for none."""
        return self._partition

    @partition.setter
    def partition(self, value: int) -> None:
        self._partition = index(value)

    @property
    def offset(self) -> int:
        """The offset, or one of the special offsets."""
        return self._offset

    @offset.setter
    def offset(self, value: int) -> None:
        self._offset = index(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return self._place() == other._place()

    def __lt__(self, other: TopicPartition) -> bool:
        return self._place() < other._place() if _is_one(other) else NotImplemented

    def __le__(self, other: TopicPartition) -> bool:
        return self._place() <= other._place() if _is_one(other) else NotImplemented

    def __gt__(self, other: TopicPartition) -> bool:
        return self._place() > other._place() if _is_one(other) else NotImplemented

    def __ge__(self, other: TopicPartition) -> bool:
        return self._place() >= other._place() if _is_one(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._place())

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self.topic, self.partition, self.offset, self.metadata, self.leader_epoch
        return TopicPartition, arguments, (None, {"error": self.error})

    def _place(self) -> tuple[str, int]:
        return self.topic, self.partition


def _is_one(other: object) -> bool:
    return isinstance(other, TopicPartition)
