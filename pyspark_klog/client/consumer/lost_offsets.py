"""The error for offsets that do not exist, with its texts, and the check whether an error may pass
when the request is sent again."""

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
        # Brokers answer with this code while a log's remote tier cannot be read.
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def is_passing_error(error: KlogError) -> bool:
    """Whether the same Fetch or ListOffsets request may succeed when it is sent again later."""
    if isinstance(error, BrokerError):
        return error.code.retriable or error.code in _ALSO_PASSING
    return is_retriable(error)


class OffsetsLost(ClientError):
    """Offsets from ``start`` on do not exist; ``available`` is the range of existing offsets, with
    an exclusive end.

    ``is_deleted`` says that brokers do not know the partition any more, ``is_recreated`` that the
    topic was deleted and created again. ``stable_end`` is set if the log has later offsets, which
    only an open transaction hides from a reader of committed records: the offset at which that
    transaction begins.
    """

    def __init__(
        self,
        text: str,
        partition: TopicPartition,
        start: int,
        available: tuple[int, int],
        *,
        is_deleted: bool = False,
        is_recreated: bool = False,
        stable_end: int | None = None,
    ) -> None:
        super().__init__(text)
        self.partition = partition
        self.start = start
        self.available = available
        self.is_deleted = is_deleted
        self.is_recreated = is_recreated
        self.stable_end = stable_end


def out_of_range(
    partition: TopicPartition, start: int, end: int, available: tuple[int, int]
) -> OffsetsLost:
    """The error for an offset outside ``available``, the offsets that the leader has."""
    return OffsetsLost(
        f"offset {start} of {partition} is out of range: offsets {start} to {end} were to be read, "
        f"and {available[0]} to {available[1]} are there (ends exclusive)",
        partition,
        start,
        available,
    )


def partition_deleted(partition: TopicPartition, start: int, end: int) -> OffsetsLost:
    """The error for a partition that brokers do not know any more."""
    return OffsetsLost(
        f"{partition} is gone: offsets {start} to {end} were to be read, and it, or its topic, "
        "does not exist any more",
        partition,
        start,
        (0, 0),
        is_deleted=True,
    )


def topic_recreated(
    partition: TopicPartition, start: int, end: int, was: UUID, now: UUID
) -> OffsetsLost:
    """The error for a topic that was deleted and created again; ``now`` is the new topic's id."""
    return OffsetsLost(
        f"topic {partition.topic} was deleted and made again (its id was {was}, and is {now} now): "
        f"offsets {start} to {end} of {partition} were to be read, and those of the old topic are "
        "gone",
        partition,
        start,
        (0, 0),
        is_recreated=True,
    )
