"""Records the directories of logs in klog-metadata before their partitions get a leader.

Only a leader acknowledges records. So klog-metadata has the directory of each partition that has
acknowledged records, and a starting broker that finds no log of the partition knows that data is
missing.
"""

from collections.abc import Callable, Sequence

from klog_broker.metadata.changes import PARTITIONS_PER_ELEMENT, Draft, MetadataChange, PlanSteps
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
    """The metadata change that records in klog-metadata the directories of new logs, except logs of
    topics that no longer exist."""

    def __init__(self, logs: LogsByTopic, done: Callable[[Exception | None], None]) -> None:
        self._logs = logs
        self._done = done

    def plan(self, draft: Draft) -> PlanSteps:
        """Add the directories of the logs whose topics still exist to the draft of the new
        metadata."""
        logs = {key: self._logs[key] for key in self._logs if key in draft.image.topics_by_id}
        yield 1 + sum(map(len, logs.values())) // PARTITIONS_PER_ELEMENT
        if logs:
            draft.assignments = draft.assignments.with_logs(logs)
        return ()

    def report_failure(self, error: Exception) -> None:
        """Report that klog-metadata could not be written."""
        self._done(error)

    def on_applied(self, _results: RoleChangeErrors) -> Steps:
        """Report that the directories of the new logs are in klog-metadata, durably."""
        yield 1
        self._done(None)


class RecordingRoleChanges:
    """Applies role changes (instructions to lead, follow or delete replicas). If role changes
    create logs, records the directories of these logs in klog-metadata before the logs' partitions
    get a leader."""

    def __init__(
        self,
        apply: ApplyRoleChanges,
        directory_of: DirectoryOf,
        *,
        image: Callable[[], MetadataImage],
        assignments: Callable[[], DirectoryAssignments],
        make_change: Callable[[MetadataChange], None],
    ) -> None:
        self._apply = apply
        self._directory_of = directory_of
        self._image = image
        self._assignments = assignments
        self._make_change = make_change

    def apply(
        self, role_changes: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]
    ) -> None:
        """Apply role changes (instructions to lead, follow or delete replicas), and call `done`
        with the errors. If a log's directory could not be recorded, its role change fails with
        StoreFailed, and the partition gets no leader."""
        new = {each.topic_partition: each for each in role_changes if self._is_unrecorded(each)}
        if not new:
            self._apply(role_changes, done)
            return
        unled = [
            _without_leader(each) if each.topic_partition in new else each for each in role_changes
        ]
        self._apply(unled, lambda results: self._created(tuple(new.values()), results, done))

    def _is_unrecorded(self, role_change: RoleChange) -> bool:
        recorded = self._assignments().of_topic(role_change.topic_id)
        return isinstance(role_change, RoleAssignment) and (
            role_change.topic_partition.partition not in recorded
        )

    def _created(
        self,
        role_changes: Sequence[RoleChange],
        results: RoleChangeErrors,
        done: Callable[[RoleChangeErrors], None],
    ) -> None:
        """Record the directories of the logs that these role changes created. A role change with an
        error in `results` has created none."""
        logs: dict[TopicId, dict[int, DirectoryId]] = {}
        for role_change in role_changes:
            directory_id = self._directory_of(role_change.topic_partition)
            if role_change.topic_partition not in results and directory_id is not None:
                logs.setdefault(role_change.topic_id, {})[role_change.topic_partition.partition] = (
                    directory_id
                )
        if not logs:
            self._lead(role_changes, results, done)
            return

        def recorded(error: Exception | None) -> None:
            if error is None:
                self._lead(role_changes, results, done)
            elif isinstance(error, KlogError):
                failed = {each.topic_partition: error for each in role_changes}
                done({**failed, **results})
            else:
                raise error

        self._make_change(RecordLogs(logs, recorded))

    def _lead(
        self,
        role_changes: Sequence[RoleChange],
        results: RoleChangeErrors,
        done: Callable[[RoleChangeErrors], None],
    ) -> None:
        """Apply the role changes that name a leader, now that the logs exist and are recorded.
        Leaves out role changes that have failed, and those of topics deleted meanwhile."""
        leading = [
            each
            for each in role_changes
            if isinstance(each, RoleAssignment)
            and each.leader != NO_BROKER
            and each.topic_partition not in results
            and self._image().topic_by_id(each.topic_id) is not None
        ]
        if leading:
            self._apply(leading, lambda more: done({**results, **more}))
        else:
            done(results)


def _without_leader(role_change: RoleChange) -> RoleChange:
    """Return the role change without its leader, so that the broker creates the partition's log,
    but neither leads nor follows."""
    if isinstance(role_change, RoleAssignment) and role_change.leader != NO_BROKER:
        return role_change.with_leader(NO_BROKER)
    return role_change


def unrecorded_logs(
    image: MetadataImage, assignments: DirectoryAssignments, directory_of: DirectoryOf
) -> LogsByTopic:
    """Return the directories of all existing logs of the image's topics that `assignments` does not
    list."""
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
