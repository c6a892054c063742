"""Records the directories of logs in klog-metadata before anybody leads their partitions.

Records are acknowledged only by a leader. So a partition that has acknowledged records is recorded,
and a start that finds no log of the partition knows that data is missing.
"""

from collections.abc import Callable, Sequence

from klog_broker.metadata.changes import PARTITIONS_PER_ELEMENT, Change, Draft, PlanSteps
from klog_broker.metadata.directory_assignments import (
    DirectoryAssignments,
    DirectoryOf,
    LogsByTopic,
)
from klog_broker.metadata.image import NO_BROKER, MetadataImage
from klog_broker.metadata.role_changes import (
    ApplyRoleChanges,
    RoleAssignment,
    RoleChange,
    RoleChangeErrors,
)
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import DirectoryId, TopicId


class RecordLogs:
    """The change that records the directories of logs. Topics that are gone by now are left out."""

    def __init__(self, logs: LogsByTopic, done: Callable[[Exception | None], None]) -> None:
        self._logs = logs
        self._done = done

    def plan(self, draft: Draft) -> PlanSteps:
        """Add the logs of topics that still exist to the draft's assignments."""
        logs = {key: self._logs[key] for key in self._logs if key in draft.image.topics_by_id}
        yield 1 + sum(map(len, logs.values())) // PARTITIONS_PER_ELEMENT
        if logs:
            draft.assignments = draft.assignments.with_logs(logs)
        return ()

    def failed(self, error: Exception) -> None:
        """Report that klog-metadata could not be written."""
        self._done(error)

    def carried_out(self, _results: RoleChangeErrors) -> Steps:
        """Report that the assignments are durable."""
        yield 1
        self._done(None)


class RecordingRoleChanges:
    """Carries orders out as `apply` does; logs that are created by them are recorded durably, and
    only then are their partitions led."""

    def __init__(
        self,
        apply: ApplyRoleChanges,
        directory_of: DirectoryOf,
        *,
        image: Callable[[], MetadataImage],
        assignments: Callable[[], DirectoryAssignments],
        make_change: Callable[[Change], None],
    ) -> None:
        self._apply = apply
        self._directory_of = directory_of
        self._image = image
        self._assignments = assignments
        self._make_change = make_change

    def apply(self, orders: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]) -> None:
        """See ApplyRoleChanges. A log that could not be recorded fails its order with StoreFailed;
        the partition is then not led."""
        new = {each.topic_partition: each for each in orders if self._is_unrecorded(each)}
        if not new:
            self._apply(orders, done)
            return
        unled = [_unled(each) if each.topic_partition in new else each for each in orders]
        self._apply(unled, lambda results: self._created(tuple(new.values()), results, done))

    def _is_unrecorded(self, order: RoleChange) -> bool:
        recorded = self._assignments().of_topic(order.topic_id)
        return isinstance(order, RoleAssignment) and (
            order.topic_partition.partition not in recorded
        )

    def _created(
        self,
        orders: Sequence[RoleChange],
        results: RoleChangeErrors,
        done: Callable[[RoleChangeErrors], None],
    ) -> None:
        """The logs of these orders have been created, but for those with an error."""
        logs: dict[TopicId, dict[int, DirectoryId]] = {}
        for order in orders:
            directory_id = self._directory_of(order.topic_partition)
            if order.topic_partition not in results and directory_id is not None:
                logs.setdefault(order.topic_id, {})[order.topic_partition.partition] = directory_id
        if not logs:
            self._lead(orders, results, done)
            return

        def recorded(error: Exception | None) -> None:
            if error is None:
                self._lead(orders, results, done)
            elif isinstance(error, KlogError):
                failed = {each.topic_partition: error for each in orders}
                done({**failed, **results})
            else:
                raise error

        self._make_change(RecordLogs(logs, recorded))

    def _lead(
        self,
        orders: Sequence[RoleChange],
        results: RoleChangeErrors,
        done: Callable[[RoleChangeErrors], None],
    ) -> None:
        """Carry out what is left of these orders: a topic may have been deleted meanwhile."""
        leading = [
            each
            for each in orders
            if isinstance(each, RoleAssignment)
            and each.leader != NO_BROKER
            and each.topic_partition not in results
            and self._image().topic_by_id(each.topic_id) is not None
        ]
        if leading:
            self._apply(leading, lambda more: done({**results, **more}))
        else:
            done(results)


def _unled(order: RoleChange) -> RoleChange:
    """The order to create a log that nobody leads yet."""
    if isinstance(order, RoleAssignment) and order.leader != NO_BROKER:
        return order.with_leader(NO_BROKER)
    return order


def unrecorded_logs(
    image: MetadataImage, assignments: DirectoryAssignments, directory_of: DirectoryOf
) -> LogsByTopic:
    """The logs of known topics that exist and are not recorded."""
    logs: dict[TopicId, dict[int, DirectoryId]] = {}
    for topic in image.topics.values():
        recorded = assignments.of_topic(topic.topic_id)
        if len(recorded) == len(topic.partitions):
            continue
        for topic_partition in topic.topic_partitions():
            directory_id = directory_of(topic_partition)
            if topic_partition.partition not in recorded and directory_id is not None:
                logs.setdefault(topic.topic_id, {})[topic_partition.partition] = directory_id
    return logs
