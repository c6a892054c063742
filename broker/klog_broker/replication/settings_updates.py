"""Applies changed topic settings to the hosted partitions (those of which this broker has a
replica); if they are many, some in each event-loop turn."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from klog_broker.config import TopicConfig
from klog_broker.log.log_config import LogConfig
from klog_broker.replication.partition import Partition

PARTITIONS_A_TURN = 2_000
"""How many partitions at most get changed settings at once (within one event-loop turn), which
takes about 10 ms."""


class TopicSettings(NamedTuple):
    """The part of a topic's settings that its replicas need: the log's settings and
    min.insync.replicas."""

    log: LogConfig
    min_in_sync_replicas: int

    @classmethod
    def from_topic_config(
        cls, config: TopicConfig, *, holds_state: bool = False
    ) -> "TopicSettings":
        """Extract the log's settings and min.insync.replicas from all settings of a topic.
        ``holds_state``: whether the topic is one in which coordinators store their state, such as
        __consumer_offsets."""
        log = LogConfig.from_topic_config(config, holds_state=holds_state)
        return cls(log, config["min.insync.replicas"])


class SettingsUpdates:
    """Applies changed topic settings to partitions, at most PARTITIONS_A_TURN at once and further
    ones in later event-loop turns. The first partitions get their settings within the call of
    :meth:`update`, unless earlier updates are still under way. Loop thread only."""

    def __init__(
        self,
        settings_of: Callable[[str], TopicSettings],
        is_hosted: Callable[[Partition], bool],
        on_updated: Callable[[], None],
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`settings_of` returns the present settings of a topic. Partitions for which `is_hosted`
        returns False are skipped: this broker has no replica of them any more. `on_updated` is
        called each time that up to PARTITIONS_A_TURN partitions have got their settings.
        """
        self._settings_of = settings_of
        self._is_hosted = is_hosted
        self._on_updated = on_updated
        self._call_soon = call_soon
        self._waiting: deque[Partition] = deque()
        self._then: list[Callable[[], None]] = []

    def update(self, partitions: Iterable[Partition]) -> None:
        """Apply the present topic settings to these partitions, after those of earlier calls."""
        is_under_way = bool(self._waiting)
        self._waiting.extend(partitions)
        if not is_under_way:
            self._update_next_partitions()

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` once the settings of all partitions that were passed to `update` are applied;
        within this call if no partition waits."""
        if self._waiting:
            self._then.append(then)
        else:
            then()

    def _update_next_partitions(self) -> None:
        topic: str | None = None
        for _ in range(min(len(self._waiting), PARTITIONS_A_TURN)):
            partition = self._waiting.popleft()
            if partition.topic_partition.topic != topic:
                topic = partition.topic_partition.topic
                settings = self._settings_of(topic)
            if self._is_hosted(partition):
                _update(partition, settings)
        self._on_updated()
        if self._waiting:
            self._call_soon(self._update_next_partitions)
            return
        then, self._then = self._then, []
        for each in then:
            each()


def _update(partition: Partition, settings: TopicSettings) -> None:
    log = partition.log
    if log is None:
        return
    # Compare with `is not` first, because comparing all settings with `!=` takes 1 us, and a topic
    # may have 10,000 partitions.
    is_other = log.config is not settings.log and log.config != settings.log
    if is_other:
        log.update_config(settings.log)
    partition.apply_settings(settings.min_in_sync_replicas, has_other_config=is_other)
