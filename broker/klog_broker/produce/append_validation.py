"""Appends that wait while a helper thread validates, decompresses or recompresses their batches.

While an append of a connection waits, all later appends of that connection wait behind it, whatever
their partition, so that their order is kept; other connections continue. No more requests of the
connection are parsed in that time, so its waiting appends come from one request or one event-loop
turn. Only BATCHES_AT_ONCE batches are validated at a time, and connections take turns, because a
batch can take hundreds of MiB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from klog_broker.log.validation.log_validator import Validated
from klog_broker.produce.pending_produce import PartitionAppend
from klog_broker.replication.leader import Leader
from klog_broker.runtime.event_loop.switching import short_switch_interval
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers

BATCHES_AT_ONCE = 2
"""How many batches helper threads validate at the same time."""

FinishedValidation = Callable[[], Validated]
"""Returns the batch that a helper thread has validated, or raises the validation's error."""


class _WaitingAppend(NamedTuple):
    leader: Leader
    append: PartitionAppend


class AppendValidation:
    """The queues of appends that wait until a helper thread has validated their batches, by
    connection. Loop thread only.

    ``finish(leader, append, validated)`` appends the batch that a helper thread has validated. If
    ``validated`` is None, no helper thread has validated the batch: ``finish`` validates and
    appends it in the loop thread, or returns False if that would take too long.
    """

    def __init__(
        self,
        helpers: Helpers,
        clock: Clock,
        finish: Callable[[Leader, PartitionAppend, FinishedValidation | None], bool],
    ) -> None:
        self._helpers = helpers
        self._clock = clock
        self._finish = finish
        self._queues: dict[str, deque[_WaitingAppend]] = {}
        self._waiting: deque[str] = deque()
        self._working = 0

    def has_waiting(self, connection_id: str) -> bool:
        """Return whether an append of the connection waits until a helper thread has validated its
        batch: then all later appends of the connection must wait behind it, so that their order is
        kept."""
        return connection_id in self._queues

    def add_append(self, connection_id: str, leader: Leader, append: PartitionAppend) -> None:
        """Let an append wait until a helper thread has validated its batch, and until all earlier
        appends of the same connection are made."""
        if not append.pending.context.response_sink.hold():
            # The records are views of the receive buffer, which is reused after this event-loop
            # turn: copy them, because the append is made later.
            append = append._replace(records=bytearray(append.records))
        held = _WaitingAppend(leader, append)
        queue = self._queues.get(connection_id)
        if queue is not None:
            queue.append(held)
            return
        self._queues[connection_id] = deque((held,))
        self._waiting.append(connection_id)
        self._start()

    def _start(self) -> None:
        while self._waiting and self._working < BATCHES_AT_ONCE:
            self._working += 1
            self._submit(self._waiting.popleft())

    def _submit(self, connection_id: str) -> None:
        leader, append = self._queues[connection_id][0]
        prepare = leader.validation_job(append.records, self._clock.now_ms())

        def work() -> Validated:
            with short_switch_interval():
                return prepare()

        def on_validated(result: Validated | None, error: BaseException | None) -> None:
            def validated() -> Validated:
                if result is None:
                    raise error or RuntimeError("a helper returned nothing")
                return result

            self._working -= 1
            self._finish_appends(connection_id, validated)
            self._start()

        self._helpers.submit(work, on_validated)

    def _finish_appends(self, connection_id: str, validated: FinishedValidation | None) -> None:
        """Append the validated batch, and the batches queued behind it, up to the next batch that a
        helper thread has to validate."""
        queue = self._queues[connection_id]
        while queue and self._finish(queue[0].leader, queue[0].append, validated):
            queue.popleft().append.pending.appended()
            validated = None
        if queue:
            self._waiting.append(connection_id)
        else:
            del self._queues[connection_id]
