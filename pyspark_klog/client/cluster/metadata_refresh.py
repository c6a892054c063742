"""When a client asks for the metadata of which topics. Pure: time and chance are arguments."""

from collections.abc import Callable

from pyspark_klog.client.transport.backoff import Backoff


class MetadataRefresh:
    """The topics that a client follows, and the time of the next request for their metadata.

    At most one request is under way. A topic is due when it is new, when a caller doubts what is
    known of it (`doubt`), and ``max_age_ms`` after its last request. After a failed request, and
    for a topic that is doubted again and again, the next request waits longer each time.
    """

    def __init__(self, max_age_ms: int, backoff: Backoff, random: Callable[[], float]) -> None:
        self._max_age_ms = max_age_ms
        self._backoff = backoff
        self._random = random
        self._due_ms: dict[str, int] = {}
        self._doubts: dict[str, int] = {}
        """How often a topic was doubted since a caller last confirmed it."""
        self._failures = 0
        self._not_before_ms = 0
        self._under_way: frozenset[str] = frozenset()

    @property
    def topics(self) -> list[str]:
        """The topics that are followed."""
        return list(self._due_ms)

    def follow(self, topic: str, now_ms: int) -> None:
        """Begin to follow a topic; nothing changes if it is followed already."""
        self._due_ms.setdefault(topic, now_ms)

    def unfollow(self, topic: str) -> None:
        """Stop following a topic."""
        self._due_ms.pop(topic, None)
        self._doubts.pop(topic, None)

    def doubt(self, topic: str, now_ms: int) -> None:
        """Ask again for a topic whose metadata seem to be old: a broker does not lead a partition
        any more, or does not know the topic yet."""
        if topic not in self._due_ms:
            return
        count = self._doubts[topic] = self._doubts.get(topic, 0) + 1
        wait_ms = 0 if count == 1 else self._backoff.wait_ms(count - 1, self._random)
        self._due_ms[topic] = min(self._due_ms[topic], now_ms + wait_ms)

    def confirm(self, topic: str) -> None:
        """Note that the metadata of a topic are right: a leader has answered without an error."""
        self._doubts.pop(topic, None)

    def next_ms(self) -> int | None:
        """The time of the next request; None while one is under way, or without topics."""
        if self._under_way or not self._due_ms:
            return None
        return max(min(self._due_ms.values()), self._not_before_ms)

    def begin(self, now_ms: int) -> list[str]:
        """The topics to ask for now, in the order of their names; a request is then under way. The
        list is empty if nothing is due."""
        due_ms = self.next_ms()
        if due_ms is None or due_ms > now_ms:
            return []
        self._under_way = frozenset(name for name, at in self._due_ms.items() if at <= now_ms)
        # A doubt from now on is about what the response may say, so that it counts after it.
        self._due_ms |= dict.fromkeys(self._under_way, now_ms + self._max_age_ms)
        return sorted(self._under_way)

    def answered(self) -> None:
        """The request under way was answered."""
        self._failures = 0
        self._under_way = frozenset()

    def failed(self, now_ms: int) -> None:
        """The request under way has failed: its topics are due again after a wait."""
        self._failures += 1
        self._not_before_ms = now_ms + self._backoff.wait_ms(self._failures, self._random)
        self._due_ms |= dict.fromkeys(self._under_way & self._due_ms.keys(), now_ms)
        self._under_way = frozenset()
