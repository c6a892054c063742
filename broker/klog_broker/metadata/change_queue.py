"""The queue of metadata changes of a standalone broker, which are written to the disk in groups.

When no write is under way, the waiting changes are planned and written together; the planning may
take several event-loop turns. After the write, the role changes that follow (instructions to lead
or delete replicas) are applied, while the next changes are written. The queue has at most one
request of each connection, because a connection's next request is served only after the response to
the earlier one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from klog_broker.metadata.changes import Draft, MetadataChange
from klog_broker.metadata.local_file import StoredState
from klog_broker.metadata.role_changes import ApplyRoleChanges, RoleChange, RoleChangeErrors
from klog_broker.metadata.unserved_partitions import UnservedPartitions
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import Slices, Steps
from klog_broker.runtime.threads.helpers import Helpers

CHANGES_PER_WRITE = 256


class _Planned(NamedTuple):
    change: MetadataChange
    role_changes: Sequence[RoleChange]


class ChangeQueue:
    """Plans, writes and applies metadata changes, in the order of their requests."""

    def __init__(
        self,
        loop: Loop,
        helpers: Helpers,
        *,
        state: Callable[[], StoredState],
        write: Callable[[StoredState], None],
        on_written: Callable[[StoredState, Draft], None],
        apply: ApplyRoleChanges,
        unserved: UnservedPartitions,
    ) -> None:
        """`state` returns the newest durable state. A helper thread calls `write`, which returns
        when its state is durable. Then the loop's thread calls `on_written` with the state and the
        draft that it was made from, and `apply` with the role changes. `unserved` gets the
        partitions whose role changes fail."""
        self._loop = loop
        self._helpers = helpers
        self._slices = Slices(loop)
        self._state = state
        self._write = write
        self._on_written = on_written
        self._apply = apply
        self._unserved = unserved
        self._queue: deque[MetadataChange] = deque()
        self._is_changing = False

    def put(self, change: MetadataChange) -> None:
        """Plan and write the change together with others, after the changes before it."""
        self._queue.append(change)
        self._start_planning()

    def _start_planning(self) -> None:
        if self._queue and not self._is_changing:
            self._is_changing = True
            # Begin to plan at the end of this event-loop turn, so that all changes that are
            # requested in the turn are written together.
            self._loop.call_at_append(self._plan_queued)

    def _plan_queued(self) -> None:
        self._slices.run(self._plan(), lambda: True)

    def _plan(self) -> Steps:
        """Apply the waiting changes to a draft of the metadata, one after the other, and write the
        resulting state. Handles at most CHANGES_PER_WRITE changes."""
        draft = Draft(self._state())
        planned: list[_Planned] = []
        for _ in range(min(len(self._queue), CHANGES_PER_WRITE)):
            change = self._queue.popleft()
            try:
                role_changes = yield from change.plan(draft)
            except Exception as error:  # a caller's `update` may raise any exception
                change.report_failure(error)
            else:
                planned.append(_Planned(change, role_changes))
        state = draft.state()
        if not draft.is_changed:
            self._finish_write(draft, state, planned, None)
            return
        self._helpers.submit(
            lambda: self._write(state),
            lambda _, error: self._finish_write(draft, state, planned, error),
        )

    def _finish_write(
        self,
        draft: Draft,
        state: StoredState,
        planned: Sequence[_Planned],
        error: BaseException | None,
    ) -> None:
        if isinstance(error, Exception):
            for change, _ in planned:
                change.report_failure(error)
        elif error is not None:
            raise error
        else:
            self._on_written(state, draft)
            self._apply_planned(planned)
        self._is_changing = False
        self._start_planning()

    def _apply_planned(self, planned: Sequence[_Planned]) -> None:
        """Apply the role changes (instructions to lead or delete replicas) of durable metadata
        changes, in order. Several metadata changes are applied together, but at most one of each
        topic."""
        together: list[_Planned] = []
        names: set[str] = set()
        for each in planned:
            own = {role_change.topic_partition.topic for role_change in each.role_changes}
            if not names.isdisjoint(own):
                self._apply_role_changes(together)
                together, names = [], set()
            together.append(each)
            names |= own
        self._apply_role_changes(together)

    def _apply_role_changes(self, planned: Sequence[_Planned]) -> None:
        role_changes: list[RoleChange] = []
        for each in planned:
            role_changes += each.role_changes
        self._on_role_changes_applied(
            (), [each.change for each in planned if not each.role_changes], {}
        )
        if role_changes:
            waiting = [each.change for each in planned if each.role_changes]
            self._apply(role_changes, partial(self._on_role_changes_applied, role_changes, waiting))

    def _on_role_changes_applied(
        self,
        role_changes: Sequence[RoleChange],
        waiting: Sequence[MetadataChange],
        results: RoleChangeErrors,
    ) -> None:
        self._unserved.add_failed(role_changes, results)

        def report_applied() -> Steps:
            for change in waiting:
                yield from change.on_applied(results)

        self._slices.run(report_applied(), lambda: True)
