"""Which replicas partitions are read from instead of their leaders (KIP-392). Pure."""

from pyspark_klog.ids import TopicPartition


class ReadReplicas:
    """The replicas that leaders have named, each for metadata.max.age.ms or until reading fails.

    After a failure the leader is read for the same time without being told the reader's rack: it
    would name the same replica again until it notices the failure itself.
    """

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[int | None, int]] = {}

    def of(self, partition: TopicPartition, now_ms: int) -> int | None:
        """The broker to read the partition from; None for its leader."""
        broker, until_ms = self._known.get(partition, (None, 0))
        return broker if now_ms < until_ms else None

    def may_ask(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether the leader is to be told the reader's rack."""
        broker, until_ms = self._known.get(partition, (None, 0))
        return broker is not None or now_ms >= until_ms

    def prefer(self, partition: TopicPartition, broker: int, until_ms: int) -> None:
        """The leader has named ``broker``, which is read from until ``until_ms``."""
        self._known[partition] = (broker, until_ms)

    def fail(self, partition: TopicPartition, until_ms: int) -> None:
        """Reading from the replica failed: the leader is read until ``until_ms``."""
        self._known[partition] = (None, until_ms)
