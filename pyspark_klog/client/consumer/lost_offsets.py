"""Offsets that were to be read and are not there, as an error, and in words; which answers to a
consumer may pass."""

from pyspark_klog.client.errors import ClientError, is_retriable
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import UUID, TopicPartition

_ALSO_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        # A log in a remote tier that cannot be read for a moment is answered so.
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def may_pass(error: KlogError) -> bool:
    """Whether the same request, a fetch or a commit, may succeed when it is sent again later."""
    if isinstance(error, BrokerError):
        return error.code.retriable or error.code in _ALSO_PASSING
    return is_retriable(error)


class OffsetsLost(ClientError):
    """Offsets from ``start`` on are not there; ``available`` are, the end exclusive.

    ``made_again`` tells whether there is another topic of that name now. ``stable_end`` is where an
    open transaction begins, if that alone keeps a reader of committed records from the rest.
    """

    def __init__(
        self,
        text: str,
        partition: TopicPartition,
        start: int,
        available: tuple[int, int],
        *,
        made_again: bool = False,
        stable_end: int | None = None,
    ) -> None:
        super().__init__(text)
        self.partition = partition
        self.start = start
        self.available = available
        self.made_again = made_again
        self.stable_end = stable_end


def out_of_range(
    partition: TopicPartition, start: int, end: int, available: tuple[int, int]
) -> OffsetsLost:
    """The leader has only ``available``."""
    return OffsetsLost(
        f"offset {start} of {partition} is out of range: offsets {start} to {end} were to be read, "
        f"and {available[0]} to {available[1]} are there (ends exclusive)",
        partition,
        start,
        available,
    )


def partition_gone(partition: TopicPartition, start: int, end: int) -> OffsetsLost:
    """Brokers know no such partition any more."""
    return OffsetsLost(
        f"{partition} is gone: offsets {start} to {end} were to be read, and it, or its topic, "
        "does not exist any more",
        partition,
        start,
        (0, 0),
    )


def topic_made_again(
    partition: TopicPartition, start: int, end: int, was: UUID, now: UUID
) -> OffsetsLost:
    """The topic's name belongs to another topic, whose id is ``now``."""
    return OffsetsLost(
        f"topic {partition.topic} was deleted and made again (its id was {was}, and is {now} now): "
        f"offsets {start} to {end} of {partition} were to be read, and those of the old topic are "
        "gone",
        partition,
        start,
        (0, 0),
        made_again=True,
    )
