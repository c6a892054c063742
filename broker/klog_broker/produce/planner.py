"""Makes an event-loop turn's produce plan with the produce kernel (compiled code), writes the
planned batches, and commits them.

A produce plan is the kernel's description of the appends for the turn's plain Produce requests. The
kernel changes only its table and its arrays. All planned batches are written behind the logs' ends,
partition by partition; they become part of the logs only when the partitions commit. If one write
fails, all writes are taken back, and the ordinary Produce handler serves the requests as if there
had been no plan. If all succeed, the partitions commit, the responses are sent or delayed, and the
connections continue with the requests that the kernel left to the ordinary handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import sub
from typing import Any

from klog_broker.log.errors import LogStorageError
from klog_broker.log.segment.planned_append import PlannedLog, PlanTarget
from klog_broker.metrics.requests import IN_THIS_TURN, RequestTimes, head_of
from klog_broker.network.buffers import ReceiveArena
from klog_broker.produce.delayed_responses import DelayedAppend, DelayedResponse
from klog_broker.produce.planner_interfaces import (
    NOTHING_RECEIVED,
    PlannedConnection,
    Received,
)
from klog_broker.produce.response_parts import ResponsePart, split_responses
from klog_broker.produce.tables import PlanTables
from klog_broker.produce.targets import ProduceTargets
from klog_broker.runtime.net.socket_calls import SocketCalls
from klog_broker.runtime.system.clock import Clock

_log = logging.getLogger("klog.produce")


_NO_DELAYED_REQUESTS: Mapping[int, int] = {}


class _CommitFailed(Exception):
    """A log could not make batches that were written to its file part of the log. The log is
    offline now."""


class _Turn:
    """The connections whose Produce requests the compiled kernel serves together in this event-loop
    turn: first those that have received by themselves and offered their bytes, then those for which
    one ``SocketCalls.receive`` has received."""

    def __init__(
        self, waiting: list[PlannedConnection], places: list[tuple[int, int]], first_received: int
    ) -> None:
        self.waiting = waiting
        # By connection: start and end of its bytes in the receive arena that no produce plan has
        # served yet. A turn has several plans if the kernel's table is too small for all requests.
        self.places = places
        self.first_received = first_received
        self.responses: dict[int, list[bytes | DelayedResponse]] = {}
        self.is_over = False
        """Whether no connection has anything left to do after the compiled kernel has served this
        turn's Produce requests: one ``SocketCalls.receive`` has received for all of them, all
        received requests are served, and all responses are sent."""

    def add_response(self, number: int, data: bytes | DelayedResponse) -> None:
        """Add ``data`` to the responses that connection number ``number`` in ``waiting`` (the
        connections of this turn) sends."""
        self.responses.setdefault(number, []).append(data)


class ProducePlanner:
    """Makes one broker's produce plans, each for the plain Produce requests of an event-loop turn,
    once the compiled produce kernel is loaded. Loop thread only."""

    def __init__(
        self,
        kernel: Any,
        arena: ReceiveArena,
        max_request_bytes: int,
        targets: ProduceTargets,
        clock: Clock,
        times: RequestTimes,
        make_calls: Callable[[memoryview, memoryview], SocketCalls | None],
    ) -> None:
        self.requests = 0
        """How many requests the compiled kernel has served (in produce plans) so far, for tests and
        metrics."""
        self._kernel = kernel
        self._targets = targets
        self._clock = clock
        self._times = times
        self._tables = PlanTables(kernel, arena.view, max_request_bytes)
        self.calls = make_calls(arena.view, self._tables.responses)
        """Receives from many sockets, or sends responses to many sockets, in one call of compiled
        code (SocketCalls); None without such code, as on a system other than Linux, where each
        connection receives and sends by itself."""
        self._logs: list[PlanTarget | None] = []
        self._targets_version = targets.version
        self._slots_before = 0
        # By log: the number of the slot (a row of the kernel's table) that has the log's facts
        # (such as its next offset and limits) in this produce plan (the kernel's list of appends).
        self._slot_of: dict[PlannedLog, int] = {}

    def run(
        self, offered: Sequence[PlannedConnection], received: Received = NOTHING_RECEIVED
    ) -> bool:
        """Serve the Produce requests that the compiled kernel can serve: have it plan their
        appends, append the batches, and send the responses.

        ``offered`` are connections that have received by themselves: for each, ``on_planned`` is
        called once. Connections in ``received`` get their responses from ``calls.send``,
        which serves many sockets at once; ``continue_after_plan`` is called only for those with
        bytes left to parse, or with responses that are delayed or could not be sent completely.
        Return whether ``continue_after_plan`` was never called.
        """
        limit = self._kernel.MAX_CONNECTIONS
        connections, bounds = received
        if len(offered) + len(connections) <= limit:
            return self._run(offered, received)
        for start in range(0, len(offered), limit):
            self._run(offered[start : start + limit], NOTHING_RECEIVED)
        is_over = True
        for start in range(0, len(connections), limit):
            some = connections[start : start + limit]
            is_over &= self._run((), Received(some, bounds[start : start + limit + 1]))
        return is_over

    def _run(self, offered: Sequence[PlannedConnection], received: Received) -> bool:
        waiting: list[PlannedConnection] = []
        places: list[tuple[int, int]] = []
        for connection in offered:
            place = connection.plannable()
            if place is None:
                connection.on_planned(0, [])
            else:
                waiting.append(connection)
                places.append(place)
        first_received = len(waiting)
        waiting += received.connections
        places += pairwise(received.bounds)
        turn = _Turn(waiting, places, first_received)
        begun = [start for start, _ in places]
        self._plan_all(turn)
        if turn.is_over:
            return True
        is_over = True
        for number, connection in enumerate(waiting):
            taken_to, end = places[number]
            responses = turn.responses.get(number, [])
            if number < first_received:
                connection.on_planned(taken_to - begun[number], responses)
            elif taken_to < end or responses:
                is_over = False
                connection.continue_after_plan(
                    begun[number], end, taken_to - begun[number], responses
                )
        return is_over

    def _plan_all(self, turn: _Turn) -> None:
        """Make one produce plan (the kernel's list of appends), or several if the kernel's table is
        too small for all requests."""
        tables = self._tables
        first = 0
        while first < len(turn.waiting):
            status = self._plan(turn.places[first:], turn.waiting[first:])
            count = len(turn.places) - first
            requests = tables.requests
            if requests:
                now_ms = self._clock.now_ms()
                try:
                    done = self._append(now_ms)
                except _CommitFailed:
                    for connection in turn.waiting[first:]:
                        connection.close("the log of a partition in its requests failed")
                    return
                if not done:
                    return
                self.requests += requests
                if tables.has_delayed:
                    self._targets.appended()
                if not first and self._send_responses(turn):
                    self._count(_NO_DELAYED_REQUESTS)
                    return
                self._count(self._collect(turn, first))
            if status == self._kernel.DONE:
                return
            # A section of the kernel's table, or the array of responses, is full: the next produce
            # plan (list of appends) begins with the connection whose request did not fit.
            first += min(tables.connection, count)
            if not requests and not self._free_slots():
                first += 1

    # -- making a produce plan with the compiled kernel ---------------------------------------

    def _plan(
        self, places: Sequence[tuple[int, int]], connections: Sequence[PlannedConnection]
    ) -> int:
        kernel, tables = self._kernel, self._tables
        if self._targets.version != self._targets_version:
            self._forget_slots()
        self._slots_before = tables.slots
        self._slot_of.clear()
        principals = None
        if self._targets.checks_access:
            principals = [each.principal_number for each in connections]
        tables.begin_plan(places, principals)
        now_ms = self._clock.now_ms()
        while True:
            status = tables.plan()
            if status == kernel.NEED_SLOT:
                self._fill_slot(tables.needed, now_ms)
            elif status == kernel.NEED_PRODUCER:
                slot, producer_id = tables.producer_key(tables.needed)
                tables.fill_producer(tables.needed, self._log_of(slot).producer(producer_id))
            elif status == kernel.NEED_TRANSACTION:
                self._fill_transaction(tables.needed)
            else:
                return status

    def _forget_slots(self) -> None:
        self._targets_version = self._targets.version
        self._logs.clear()
        self._tables.forget_slots()

    def _free_slots(self) -> bool:
        """Called after a produce plan (list of appends) that took no request. If any slot (a
        partition's row of the kernel's table) was in use before that plan, free all slots and
        return True: another plan then has more free slots."""
        if not self._slots_before:
            return False
        self._forget_slots()
        return True

    def _fill_slot(self, number: int, now_ms: int) -> None:
        tables = self._tables
        while len(self._logs) <= number:
            self._logs.append(None)
        target = self._logs[number]
        if target is None:
            topic, by_id, partition, principal = tables.slot_key(number)
            target = self._targets.find(
                topic, by_id=by_id, partition=partition, principal=principal
            )
            self._logs[number] = target
        if target is None:
            tables.leave_slot(number)
            return
        other = self._slot_of.get(target.log)
        if other is not None:
            tables.join_slots(number, other)
            return
        facts = target.log.plan_facts(now_ms)
        if facts is None:
            tables.leave_slot(number)
            return
        self._slot_of[target.log] = number
        tables.fill_slot(number, facts, target.acks_all)

    def _fill_transaction(self, number: int) -> None:
        """Write the state of a producer (such as its epoch and last sequence) into the kernel's
        table. The producer's first batch in this produce plan (list of appends) is transactional:
        its transaction has begun, or it begins with this batch. If neither is true, the kernel
        leaves the request to the ordinary Produce handler."""
        tables = self._tables
        slot, producer_id = tables.producer_key(number)
        log = self._log_of(slot)
        entry = log.producer(producer_id)
        if entry is None or entry.current_transaction_first_offset < 0:
            first = tables.first_batch(number)
            if self._targets.begins_now(log, first):
                tables.begin_transaction(number, first.head)
                return
        tables.fill_producer(number, entry)

    def _log_of(self, slot: int) -> PlannedLog:
        target = self._logs[slot]
        assert target is not None
        log: PlannedLog = target.log
        return log

    # -- writing a plan's batches to files, and making them part of the logs ------------------

    def _append(self, now_ms: int) -> bool:
        """Write the batches of the produce plan (the kernel's list of appends) to the logs' files,
        then make them part of the logs. Return False if the batches of a partition could not be
        written; then no log has new batches. Raise _CommitFailed if a log cannot make its batches
        part of the log."""
        touched = self._tables.touched()
        written: list[PlannedLog] = []
        for slot in touched:
            log = self._log_of(slot.number)
            try:
                log.write_planned(slot.data, slot.index_entries + 1)
            except LogStorageError as error:
                _log.debug(
                    "Produce requests are served one by one: a write to partition %s failed: %s",
                    log.topic_partition,
                    error,
                )
                self._take_back(written)
                return False
            written.append(log)
        failed = False
        for log, planned in zip(written, self._tables.appends(touched), strict=True):
            try:
                log.commit_planned(planned, now_ms)
            except LogStorageError:
                failed = True
        if failed:
            raise _CommitFailed
        return True

    def _take_back(self, logs: Sequence[PlannedLog]) -> None:
        for log in logs:
            try:
                log.cut_back_planned()
            except LogStorageError as error:
                # The log's directory is offline now: later writes to the log fail.
                _log.error(
                    "cannot remove batches that were not committed from partition %s: %s",
                    log.topic_partition,
                    error,
                )

    # -- sending the responses of a produce plan ----------------------------------------------

    def _send_responses(self, turn: _Turn) -> bool:
        """Send the responses of all connections with one ``calls.send``, if possible: one
        ``calls.receive`` has received for all connections, the compiled kernel has served all
        received bytes, no response is delayed, and each connection is open and has a response. If
        that is not possible, send nothing and return False: the caller handles the connections one
        by one."""
        tables, count = self._tables, len(turn.waiting)
        if turn.first_received or tables.has_delayed or not tables.all_taken(count):
            return False
        starts, ends = tables.response_ranges(count)
        sizes = list(map(sub, ends, starts))
        # A connection may be closed: appends of this turn may have completed delayed requests, and
        # a connection is closed if sending its response fails.
        descriptors = [each.descriptor for each in turn.waiting if each.is_open]
        if min(sizes) <= 0 or len(descriptors) < count:
            return False
        assert self.calls is not None
        sent = self.calls.send(descriptors, starts, sizes)
        turn.is_over = sent == sizes
        if not turn.is_over:
            turn.places[:] = [(end, end) for _, end in turn.places]
            for number, taken in enumerate(sent):
                if taken < sizes[number]:
                    rest = starts[number] + max(taken, 0)
                    turn.add_response(number, bytes(tables.responses[rest : ends[number]]))
        return True

    def _count(self, later: Mapping[int, int]) -> None:
        """Count the Produce requests that the compiled kernel has served as answered in this
        event-loop turn, except those in ``later``: the number of requests, by head (API key and
        version in one number), that a later turn answers and counts."""
        for version, count in self._tables.versions():
            head = head_of(self._kernel.PRODUCE, version)
            now = count - later.get(head, 0)
            if now > 0:
                self._times.answered_later.append((head, now, IN_THIS_TURN))

    def _collect(self, turn: _Turn, first: int) -> Mapping[int, int]:
        """Store in ``turn`` how far the compiled kernel served each connection, and send the
        connection's responses, or add them to ``turn``. Return how many requests a later event-loop
        turn answers, by head (API key and version in one number)."""
        tables = self._tables
        later: dict[int, int] = {}
        direct: list[tuple[int, int, int]] = []
        held = tables.held()
        for number, (taken_to, end, start, stop, requests) in enumerate(
            tables.connections(len(turn.waiting) - first), first
        ):
            if requests:
                begun, turn.places[number] = turn.places[number][0], (taken_to, end)
                if number - first in held:
                    # A client sends all its Produce requests on a connection in one version, so the
                    # first request has the version of all.
                    head = tables.head_at(begun)
                    waiting = held[number - first]
                    for part in split_responses(tables.responses, waiting, start, stop, requests):
                        response = self._hold(part, partial(self._count_later, head, part.requests))
                        if isinstance(response, DelayedResponse):
                            later[head] = later.get(head, 0) + part.requests
                        turn.add_response(number, response)
                elif stop > start:
                    # If an earlier response of the connection is not fully sent yet, the connection
                    # sends these responses after it.
                    if number >= turn.first_received and number not in turn.responses:
                        direct.append((number, start, stop))
                    else:
                        turn.add_response(number, bytes(tables.responses[start:stop]))
        if direct:
            self._answer(turn, direct)
        return later

    def _count_later(self, head: int, count: int, since_ns: int) -> None:
        self._times.answered_later.append((head, count, since_ns))

    def _hold(self, part: ResponsePart, answered: Callable[[int], None]) -> bytes | DelayedResponse:
        """Return the delayed response for ``part`` (some of a connection's responses, whose
        requests have the same timeout), or the part's bytes if they can be sent now."""
        answer = bytearray(self._tables.responses[part.start : part.stop])
        appends = [
            DelayedAppend(
                self._log_of(each.slot), each.end_offset, each.error_code_at - part.start, each.ones
            )
            for each in part.held
        ]
        timeout_ms = part.held[0].timeout_ms
        return self._targets.hold(answer, appends, timeout_ms, answered) or bytes(answer)

    def _answer(self, turn: _Turn, direct: Sequence[tuple[int, int, int]]) -> None:
        """Send responses to many sockets with one ``calls.send``. Bytes that a socket does not
        accept are left to its connection, which sends them later."""
        assert self.calls is not None
        # A connection may be closed: appends of this turn may have completed delayed requests, and
        # a connection is closed if sending its response fails.
        ready = [each for each in direct if turn.waiting[each[0]].is_open]
        sent = self.calls.send(
            [turn.waiting[number].descriptor for number, _, _ in ready],
            [start for _, start, _ in ready],
            [stop - start for _, start, stop in ready],
        )
        for (number, start, stop), count in zip(ready, sent, strict=True):
            if count < stop - start:
                data = bytes(self._tables.responses[start + max(count, 0) : stop])
                turn.add_response(number, data)
