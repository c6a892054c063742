"""Counts of records and bytes for each topic, since the broker started."""

from collections.abc import Mapping


class TopicCounts:
    """The counts of one topic, shared by the logs of all its partitions on this broker."""

    __slots__ = ("bytes_in", "bytes_out", "logs", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        """The number of offsets that this broker, as the leader, has assigned to records and to the
        control records of transactions."""
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of records in Fetch responses to consumers, not to followers."""
        self.logs = 0
        """The number of logs of the topic that share these counts."""

    def add_counts(self, other: "TopicCounts") -> None:
        """Add the messages and bytes of `other` to this object."""
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


class CountsByTopic:
    """The counts of all topics of one broker. Loop thread only.

    A topic has an entry while this broker has a log of the topic. When the topic's last log on this
    broker is deleted, because the topic was deleted or its replicas moved to other brokers, the
    topic's counts are added to one sum. So the broker's totals stay right, and topics that are
    created and deleted again do not use up memory.
    """

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicCounts] = {}
        self._deleted_topics = TopicCounts()

    @property
    def by_topic(self) -> Mapping[str, TopicCounts]:
        return self._by_topic

    def add_log(self, topic: str) -> TopicCounts:
        """Count one more log of the topic, and return the topic's counts. The caller calls
        ``remove_log`` when the log is deleted."""
        counts = self._by_topic.setdefault(topic, TopicCounts())
        counts.logs += 1
        return counts

    def remove_log(self, topic: str) -> None:
        """Count one log of the topic as deleted. If this was the topic's last log on this broker,
        the topic's counts are added to the sum that `counts_of_deleted_topics` returns."""
        counts = self._by_topic[topic]
        counts.logs -= 1
        if not counts.logs:
            del self._by_topic[topic]
            self._deleted_topics.add_counts(counts)

    def counts_of_deleted_topics(self) -> TopicCounts:
        """Return a copy of one sum: the messages and bytes that topics had counted when their last
        log on this broker was deleted."""
        copy = TopicCounts()
        copy.add_counts(self._deleted_topics)
        return copy
