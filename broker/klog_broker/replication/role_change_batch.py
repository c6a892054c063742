"""Applies the role changes (instructions to lead, to follow or to stop) of one call of
ReplicaManager.apply, a few partitions at a time."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors, RoleRemoval
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

CONCURRENT_ROLE_CHANGES = 4
"""How many role changes (instructions to lead, to follow or to stop) are applied at the same time.
Each may create or delete a log in a helper thread; the limit leaves the other helper threads free
for flushes."""


OnRoleChangeApplied = Callable[[KlogError | None], None]
"""Called once, in the loop thread: with the error if a role change failed, else with None."""


class RoleChangeBatch:
    """Applies the role changes (instructions to lead, to follow or to stop) of one call of
    ReplicaManager.apply, a few at a time, and then calls `done` once with the errors."""

    def __init__(
        self,
        role_changes: Iterable[RoleChange],
        *,
        apply_change: Callable[[RoleChange, OnRoleChangeApplied], None],
        renew_checkpoints: Callable[[Callable[[], None]], None],
        done: Callable[[RoleChangeErrors], None],
    ) -> None:
        self._left = deque(role_changes)
        self._deletes = any(isinstance(each, RoleRemoval) and each.deletes for each in self._left)
        self._apply_change = apply_change
        self._renew_checkpoints = renew_checkpoints
        self._done = done
        self._results: dict[TopicPartition, KlogError] = {}
        self._at_work: set[TopicPartition] = set()
        self._is_beginning = False

    def run(self) -> None:
        """Start up to CONCURRENT_ROLE_CHANGES role changes; those of one partition run one after
        the other."""
        if self._is_beginning:
            return  # called by `_on_applied` within the loop below, which continues
        self._is_beginning = True
        while (
            self._left
            and len(self._at_work) < CONCURRENT_ROLE_CHANGES
            and self._left[0].topic_partition not in self._at_work
        ):
            role_change = self._left.popleft()
            self._at_work.add(role_change.topic_partition)
            self._apply_change(role_change, partial(self._on_applied, role_change.topic_partition))
        self._is_beginning = False
        if self._left or self._at_work:
            return
        if self._deletes:
            # Remove deleted logs from the checkpoint files: a log that is created later for the
            # same partition must not get the offsets (such as the recovery point) of the deleted
            # one.
            self._renew_checkpoints(self._end)
        else:
            self._end()

    def _on_applied(self, topic_partition: TopicPartition, error: KlogError | None) -> None:
        self._at_work.remove(topic_partition)
        if error is None:
            self._results.pop(topic_partition, None)
        else:
            self._results[topic_partition] = error
        self.run()

    def _end(self) -> None:
        self._done(self._results)
