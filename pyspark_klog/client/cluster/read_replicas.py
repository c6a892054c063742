"""The replicas that partitions are read from instead of their leaders (KIP-392). Pure."""

from pyspark_klog.ids import TopicPartition


class ReadReplicas:
    """For each partition the preferred read replica (KIP-392), which its leader has named. The
    client reads from this replica for metadata.max.age.ms, or until it calls `use_leader`, for
    example because a read from the replica failed.

    After `use_leader` the partition is read from its leader for metadata.max.age.ms. In this time
    the requests leave out the reader's rack: with the rack the leader would name the same replica
    again, until the leader notices a failure of the replica itself.
    """

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[int | None, int]] = {}

    def replica_of(self, partition: TopicPartition, now_ms: int) -> int | None:
        """The broker to read the partition from; None for its leader."""
        broker, until_ms = self._known.get(partition, (None, 0))
        return broker if now_ms < until_ms else None

    def sends_rack(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether a Fetch request has the reader's rack, so that the leader can name a replica."""
        broker, until_ms = self._known.get(partition, (None, 0))
        return broker is not None or now_ms >= until_ms

    def use_replica(self, partition: TopicPartition, broker: int, until_ms: int) -> None:
        """Read from ``broker``, which the leader has named, until ``until_ms``."""
        self._known[partition] = (broker, until_ms)

    def use_leader(self, partition: TopicPartition, until_ms: int) -> None:
        """Read from the leader until ``until_ms``, for example because a read from the preferred
        read replica failed."""
        self._known[partition] = (None, until_ms)
