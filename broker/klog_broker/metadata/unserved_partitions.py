"""Partitions without a usable log: their role assignments are tried again until one succeeds.

An assignment fails, for example, because the disk is full or a data directory is offline.
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
    """Repeats failed role assignments every RETRY_MS. Call all methods in the loop's thread."""

    def __init__(
        self, loop: Loop, image: Callable[[], MetadataImage], apply: ApplyRoleChanges
    ) -> None:
        self._loop = loop
        self._image = image
        self._apply = apply
        self._waiting: dict[TopicPartition, TopicId] = {}
        self._is_retrying = False

    def add_failed(self, orders: Sequence[RoleChange], results: RoleChangeErrors) -> None:
        """Add the partitions of the role assignments that have an error in `results`."""
        self.add(
            {
                order.topic_partition: order.topic_id
                for order in (orders if results else ())
                if isinstance(order, RoleAssignment) and order.topic_partition in results
            }
        )

    def add(self, partitions: Mapping[TopicPartition, TopicId]) -> None:
        """Assign these partitions' roles again after RETRY_MS, if their topics still exist."""
        self._waiting.update(partitions)
        if self._waiting and not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        orders: list[RoleChange] = []
        for topic_partition in list(self._waiting)[:RETRIED_AT_ONCE]:
            topic = self._image().topic_by_id(self._waiting.pop(topic_partition))
            if topic is not None:
                # Do not mark the partition as new: a data directory that is offline now may hold
                # the partition's records.
                order = changes.partition_order(topic, topic_partition.partition, is_new=False)
                orders.append(order)

        def answered(results: RoleChangeErrors) -> None:
            for order in orders:
                name, partition = order.topic_partition
                if order.topic_partition not in results:
                    _log.info("topic=%s partition=%d is served now", name, partition)
            self._is_retrying = False
            self.add_failed(orders, results)

        if orders:
            self._apply(orders, answered)
        else:
            answered({})
