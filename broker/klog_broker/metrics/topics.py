"""Records and bytes by topic, since the broker started."""

from collections.abc import Mapping


class TopicCounts:
    """Of all partitions of one topic; their logs hold it."""

    __slots__ = ("bytes_in", "bytes_out", "logs", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        """Offsets that were given out: records, and markers of transactions."""
        self.bytes_in = 0
        self.bytes_out = 0
        """Bytes of records in answers to Fetch."""
        self.logs = 0
        """How many logs hold it."""

    def take(self, other: "TopicCounts") -> None:
        """Adds what the other one has counted."""
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


class CountsByTopic:
    """Of one broker. Loop thread only. A topic is known as long as it has a log here, so that
    topics that come and go leave nothing behind but their part of the totals."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicCounts] = {}
        self._gone = TopicCounts()

    @property
    def by_topic(self) -> Mapping[str, TopicCounts]:
        return self._by_topic

    def join(self, topic: str) -> TopicCounts:
        """One more log of the topic counts, until ``leave``."""
        counts = self._by_topic.setdefault(topic, TopicCounts())
        counts.logs += 1
        return counts

    def leave(self, topic: str) -> None:
        """A log of the topic was deleted."""
        counts = self._by_topic[topic]
        counts.logs -= 1
        if not counts.logs:
            del self._by_topic[topic]
            self._gone.take(counts)

    def gone(self) -> TopicCounts:
        """Of all topics that have no log here any more: a copy."""
        gone = TopicCounts()
        gone.take(self._gone)
        return gone
