"""Partitions without a usable log: the role assignment that makes this broker a replica of the
partition is tried again until it succeeds or the topic is deleted.

A role assignment fails, for example, because the disk is full or a data directory is offline.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from klog_broker.metadata import changes
from klog_broker.metadata.image import MetadataImage
from klog_broker.metadata.role_changes import (
    ApplyRoleChanges,
    RoleAssignment,
    RoleChange,
    RoleChangeErrors,
)
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.ids import TopicId, TopicPartition

_log = logging.getLogger("klog.topics")

RETRY_MS = 10_000
RETRIED_AT_ONCE = 100


class UnservedPartitions:
    """Repeats failed role assignments, which make this broker a replica of a partition: every
    RETRY_MS at most RETRIED_AT_ONCE of them. Call all methods in the loop's thread."""

    def __init__(
        self, loop: Loop, image: Callable[[], MetadataImage], apply: ApplyRoleChanges
    ) -> None:
        self._loop = loop
        self._image = image
        self._apply = apply
        self._waiting: dict[TopicPartition, TopicId] = {}
        self._is_retrying = False

    def add_failed(self, role_changes: Sequence[RoleChange], results: RoleChangeErrors) -> None:
        """Retry the role assignments that have an error in `results`: `add` their partitions."""
        self.add(
            {
                role_change.topic_partition: role_change.topic_id
                for role_change in (role_changes if results else ())
                if isinstance(role_change, RoleAssignment)
                and role_change.topic_partition in results
            }
        )

    def add(self, partitions: Mapping[TopicPartition, TopicId]) -> None:
        """Try again later, in turns of RETRY_MS, to make this broker a replica of these partitions,
        if their topics still exist."""
        self._waiting.update(partitions)
        if self._waiting and not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        role_changes: list[RoleChange] = []
        for topic_partition in list(self._waiting)[:RETRIED_AT_ONCE]:
            topic = self._image().topic_by_id(self._waiting.pop(topic_partition))
            if topic is not None:
                # Pass is_new=False, because with True the broker would create a missing log even
                # while a data directory is offline, which may hold the partition's records.
                role_change = changes.partition_assignment(
                    topic, topic_partition.partition, is_new=False
                )
                role_changes.append(role_change)

        def on_applied(results: RoleChangeErrors) -> None:
            for role_change in role_changes:
                name, partition = role_change.topic_partition
                if role_change.topic_partition not in results:
                    _log.info("topic=%s partition=%d is served now", name, partition)
            self._is_retrying = False
            self.add_failed(role_changes, results)

        if role_changes:
            self._apply(role_changes, on_applied)
        else:
            on_applied({})
