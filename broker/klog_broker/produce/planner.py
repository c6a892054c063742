"""A turn's pipelined Produce requests: planned by the kernel, written, and only then committed.

Plan, append, commit: the kernel's plan changes nothing. All that is planned is written, partition
by partition, behind the logs' ends, where it does not count; if one write fails, all are taken
back, and the requests go the generic way as if there had been no plan. Otherwise the partitions
commit, and the connections queue the answers and go on, generically, with what the kernel left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.planned import (
    PlannedAppend,
    PlannedIndexEntry,
    PlannedProducer,
    PlanTarget,
)
from klog_broker.log.producer_state import ProducerBatch
from klog_broker.network.buffers import ReceiveArena
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.sockets import SocketCalls
from pyspark_klog.ids import Offset

if TYPE_CHECKING:
    from klog_broker.network.connection import Connection

_log = logging.getLogger("klog.produce")

Received = tuple["Connection", int, int]
"""A connection that joined the plan, and from where to where in the arena its bytes lie."""

_WORD_BYTES = 8
# A slot's words up to what a plan makes of it; a connection's; a head's; a producer's.
_SLOT = Struct("=23q")
_CONNECTION = Struct("=5q")
_CONNECTION_WORDS = 5


class PlanTargets(Protocol):
    """Which partitions there are; produce/targets.py knows."""

    @property
    def version(self) -> int:
        """Another number when anything that ``find`` says may have changed."""

    def find(self, topic: bytes, *, by_id: bool, partition: int) -> PlanTarget | None:
        """By the topic's name or the bytes of its id; None leaves it to the generic handler."""


class _CommitFailed(Exception):
    """A log could not commit what was written, and is offline: a bug."""


class _Turn:
    """The connections of one plan: first those that were offered, then those that joined."""

    def __init__(
        self, waiting: list[Connection], places: list[tuple[int, int]], first_received: int
    ) -> None:
        self.waiting = waiting
        self.places = places  # of each, what lies before it was taken; and the end
        self.first_received = first_received
        self.replies: dict[int, list[bytes]] = {}

    def add_reply(self, number: int, data: bytes) -> None:
        """What connection ``number`` has to send."""
        self.replies.setdefault(number, []).append(data)


class ProducePlanner:
    """One for each broker, once the kernel is loaded. Loop thread only."""

    def __init__(
        self,
        kernel: Any,
        arena: ReceiveArena,
        max_request_bytes: int,
        targets: PlanTargets,
        clock: Clock,
        make_calls: Callable[[memoryview, memoryview], SocketCalls | None],
    ) -> None:
        import numpy as np

        self.requests = 0
        """How many were planned and appended, for tests and metrics."""
        self._kernel = kernel
        self._targets = targets
        self._clock = clock
        self._memory = bytearray(kernel.TABLE_WORDS * _WORD_BYTES)
        self._words = memoryview(self._memory).cast("q")
        self._names = bytearray(kernel.NAMES_BYTES)
        self._replies = memoryview(bytearray(kernel.REPLIES_BYTES))
        self._batches = memoryview(bytearray(arena.size_bytes))
        self.calls = make_calls(arena.view, self._replies)
        """What connections that joined are received from and answered by; None if none can."""
        self._arguments = (
            np.frombuffer(arena.view, np.uint8),
            np.frombuffer(self._memory, np.int64),
            np.frombuffer(self._names, np.uint8),
            np.frombuffer(self._replies, np.uint8),
            np.frombuffer(self._batches, np.uint8),
        )
        self._logs: list[PlanTarget | None] = []
        self._targets_version = targets.version
        self._round = 0
        self._slots_before = 0
        # The slot that stands for a log in this plan.
        self._slot_of: dict[PartitionLog, int] = {}
        self._words[kernel.HEAD_MAX_REQUEST_BYTES] = max_request_bytes

    def run(self, offered: Sequence[Connection], received: Sequence[Received] = ()) -> bool:
        """Serves what of their requests can be planned.

        ``Connection.planned`` is called for each that was offered, once and in order. Those that
        were received from by ``calls`` are answered by ``calls``; ``Connection.take_over`` is
        called for those of which something is left to be parsed or sent. Returns whether it was
        called for none.
        """
        limit = self._kernel.MAX_CONNECTIONS
        if len(offered) + len(received) <= limit:
            return self._run(offered, received)
        for start in range(0, len(offered), limit):
            self._run(offered[start : start + limit], ())
        is_over = True
        for start in range(0, len(received), limit):
            is_over &= self._run((), received[start : start + limit])
        return is_over

    def _run(self, offered: Sequence[Connection], received: Sequence[Received]) -> bool:
        waiting: list[Connection] = []
        places: list[tuple[int, int]] = []
        for connection in offered:
            place = connection.plannable()
            if place is None:
                connection.planned(0, [])
            else:
                waiting.append(connection)
                places.append(place)
        first_received = len(waiting)
        for connection, start, end in received:
            waiting.append(connection)
            places.append((start, end))
        turn = _Turn(waiting, places, first_received)
        begun = [start for start, _ in places]
        self._plan_all(turn)
        is_over = True
        for number, connection in enumerate(waiting):
            taken_to, end = places[number]
            replies = turn.replies.get(number, [])
            if number < first_received:
                connection.planned(taken_to - begun[number], replies)
            elif taken_to < end or replies:
                is_over = False
                connection.take_over(begun[number], end, taken_to - begun[number], replies)
        return is_over

    def _plan_all(self, turn: _Turn) -> None:
        """One plan, or as many as it takes where the tables are too small."""
        kernel, words = self._kernel, self._words
        first = 0
        while first < len(turn.waiting):
            status = self._plan(turn.places[first:])
            count = len(turn.places) - first
            if words[kernel.HEAD_REQUESTS]:
                now_ms = self._clock.now_ms()
                try:
                    done = self._append(now_ms)
                except _CommitFailed:
                    for connection in turn.waiting[first:]:
                        connection.close("a partition that it wrote to failed")
                    return
                if not done:
                    return
                self.requests += words[kernel.HEAD_REQUESTS]
                self._collect(turn, first)
            if status == kernel.DONE:
                return
            # A table is full: another plan goes on behind this one.
            first += min(words[kernel.HEAD_CONNECTION], count)
            if not words[kernel.HEAD_REQUESTS] and not self._make_room():
                first += 1

    # -- plan ---------------------------------------------------------------------------------

    def _plan(self, places: Sequence[tuple[int, int]]) -> int:
        kernel, words, memory = self._kernel, self._words, self._memory
        if self._targets.version != self._targets_version:
            self._forget_slots()
        self._slots_before = words[kernel.HEAD_SLOTS]
        self._round += 1
        self._slot_of.clear()
        words[kernel.HEAD_ROUND] = self._round
        words[kernel.HEAD_CONNECTIONS] = len(places)
        for field in (
            kernel.HEAD_CONNECTION,
            kernel.HEAD_PRODUCERS,
            kernel.HEAD_ROWS,
            kernel.HEAD_INDEX_ROWS,
            kernel.HEAD_TOUCHED,
            kernel.HEAD_REPLY_END,
            kernel.HEAD_REQUESTS,
        ):
            words[field] = 0
        at = kernel.CONNECTIONS_AT * _WORD_BYTES
        for start, end in places:
            _CONNECTION.pack_into(memory, at, start, end, 0, 0, 0)
            at += _CONNECTION.size
        now_ms = self._clock.now_ms()
        while True:
            status: int = kernel.plan_produce(*self._arguments)
            if status == kernel.NEED_SLOT:
                self._fill_slot(words[kernel.HEAD_NEEDED], now_ms)
            elif status == kernel.NEED_PRODUCER:
                self._fill_producer(words[kernel.HEAD_NEEDED])
            else:
                return status

    def _forget_slots(self) -> None:
        kernel = self._kernel
        self._targets_version = self._targets.version
        self._logs.clear()
        self._words[kernel.HEAD_SLOTS] = 0
        start = kernel.SLOT_BUCKETS_AT * _WORD_BYTES
        end = kernel.PRODUCER_BUCKETS_AT * _WORD_BYTES
        self._memory[start:end] = bytes(end - start)

    def _make_room(self) -> bool:
        """Whether the next plan has more room than the one that could take nothing."""
        if not self._slots_before:
            return False
        self._forget_slots()
        return True

    def _fill_slot(self, number: int, now_ms: int) -> None:
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        while len(self._logs) <= number:
            self._logs.append(None)
        target = self._logs[number]
        if target is None:
            name_at = number * kernel.NAME_BYTES
            target = self._logs[number] = self._targets.find(
                bytes(self._names[name_at : name_at + words[at + kernel.SLOT_NAME_BYTES]]),
                by_id=bool(words[at + kernel.SLOT_BY_ID]),
                partition=words[at + kernel.SLOT_PARTITION],
            )
        words[at + kernel.SLOT_ROUND] = self._round
        words[at + kernel.SLOT_STATE] = kernel.SLOT_UNAVAILABLE
        if target is None:
            return
        log = target.log
        other = self._slot_of.get(log)
        if other is not None:
            words[at + kernel.SLOT_STATE] = kernel.SLOT_READY
            words[at + kernel.SLOT_TARGET] = kernel.SLOTS_AT + other * kernel.SLOT_WORDS
            return
        facts = log.plan_facts(now_ms)
        if facts is None:
            return
        self._slot_of[log] = number
        room = facts.room
        _SLOT.pack_into(
            self._memory,
            at * _WORD_BYTES,
            self._round,
            kernel.SLOT_READY,
            facts.next_offset,
            facts.leader_epoch,
            facts.log_start_offset,
            facts.max_message_bytes,
            facts.earliest_ms,
            facts.latest_ms,
            facts.key_required,
            room.size_bytes,
            room.segment_bytes,
            room.last_offset_limit,
            room.timestamp_limit_ms,
            room.bytes_since_index_entry,
            room.index_interval_bytes,
            room.index_rows,
            room.max_timestamp_ms,
            room.max_timestamp_offset,
            target.acks_all,
            *(0, 0, 0, 0),
        )
        words[at + kernel.SLOT_TARGET] = at
        words[at + kernel.SLOT_FIRST_OFFSET] = facts.next_offset
        words[at + kernel.SLOT_LONGEST_MS] = room.longest_ms
        words[at + kernel.SLOT_UNTIMED_LIMIT_MS] = room.untimed_limit_ms

    def _fill_producer(self, number: int) -> None:
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        log = self._log_of(words[at + kernel.PRODUCER_SLOT])
        entry = log.producer(words[at + kernel.PRODUCER_ID])
        if entry is None:
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_NEW
        elif entry.last_sequence < 0:
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_UNAVAILABLE
        else:
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_KNOWN
            words[at + kernel.PRODUCER_EPOCH] = entry.producer_epoch
            words[at + kernel.PRODUCER_LAST_SEQUENCE] = entry.last_sequence

    def _log_of(self, slot_at: int) -> PartitionLog:
        kernel = self._kernel
        target = self._logs[(slot_at - kernel.SLOTS_AT) // kernel.SLOT_WORDS]
        assert target is not None
        log: PartitionLog = target.log
        return log

    # -- append and commit --------------------------------------------------------------------

    def _append(self, now_ms: int) -> bool:
        """Whether all was written, and now counts. If not, nothing has changed."""
        kernel, words, memory = self._kernel, self._words, self._memory
        touched = words[kernel.TOUCHED_AT : kernel.TOUCHED_AT + words[kernel.HEAD_TOUCHED]].tolist()
        written: list[tuple[PartitionLog, int, tuple[int, ...]]] = []
        for slot_at in touched:
            log = self._log_of(slot_at)
            slot = _SLOT.unpack_from(memory, slot_at * _WORD_BYTES)
            start = slot[kernel.SLOT_OUT]
            data = self._batches[start : start + slot[kernel.SLOT_BYTES]]
            try:
                log.write_planned(data, slot[kernel.SLOT_INDEX_ROWS] + 1)
            except LogStorageError as error:
                _log.debug("partition=%s plan dropped: %s", log.topic_partition, error)
                self._take_back([each for each, _, _ in written])
                return False
            written.append((log, slot_at, slot))
        producers = self._planned_producers()
        entries = self._planned_index_entries()
        failed = False
        for log, slot_at, slot in written:
            number = (slot_at - kernel.SLOTS_AT) // kernel.SLOT_WORDS
            size_bytes = slot[kernel.SLOT_BYTES]
            planned = PlannedAppend(
                words[slot_at + kernel.SLOT_FIRST_OFFSET],
                slot[kernel.SLOT_NEXT_OFFSET],
                size_bytes,
                words[slot_at + kernel.SLOT_FIRST_TIMESTAMP_MS],
                slot[kernel.SLOT_SINCE_INDEX_ENTRY],
                slot[kernel.SLOT_MAX_TIMESTAMP_MS],
                slot[kernel.SLOT_MAX_TIMESTAMP_OFFSET],
                entries.get(number, ()),
                producers.get(slot_at, ()),
            )
            try:
                log.commit_planned(planned, now_ms)
            except LogStorageError:
                failed = True
        if failed:
            raise _CommitFailed
        return True

    def _take_back(self, logs: Sequence[PartitionLog]) -> None:
        for log in logs:
            try:
                log.take_back_planned()
            except LogStorageError as error:
                # Its directory is offline now; whoever writes to it is told so.
                _log.error("partition=%s: %s", log.topic_partition, error)

    def _planned_index_entries(self) -> dict[int, list[PlannedIndexEntry]]:
        """By slot number."""
        kernel, words = self._kernel, self._words
        found: dict[int, list[PlannedIndexEntry]] = {}
        at = kernel.INDEX_ROWS_AT
        flat = words[at : at + words[kernel.HEAD_INDEX_ROWS] * kernel.INDEX_WORDS].tolist()
        rows = zip(*[iter(flat)] * kernel.INDEX_WORDS, strict=True)
        for number, of_slot in groupby(rows, itemgetter(kernel.INDEX_SLOT)):
            found.setdefault(number, []).extend([each[1:] for each in of_slot])
        return found

    def _planned_producers(self) -> dict[int, list[PlannedProducer]]:
        """By where the slot's words begin."""
        kernel, words = self._kernel, self._words
        found: dict[int, list[PlannedProducer]] = {}
        for number in range(words[kernel.HEAD_PRODUCERS]):
            at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
            row = words[at : at + kernel.PRODUCER_WORDS].tolist()
            count = row[kernel.PRODUCER_BATCHES]
            window: list[ProducerBatch] = []
            for batch in range(max(0, count - kernel.WINDOW_BATCHES), count):
                place = kernel.PRODUCER_WINDOW + (
                    batch % kernel.WINDOW_BATCHES * kernel.WINDOW_WORDS
                )
                first, last, first_offset, last_offset, max_timestamp_ms = row[
                    place : place + kernel.WINDOW_WORDS
                ]
                window.append(
                    ProducerBatch(
                        first, last, Offset(first_offset), Offset(last_offset), max_timestamp_ms, -1
                    )
                )
            if window:
                found.setdefault(row[kernel.PRODUCER_SLOT], []).append(
                    PlannedProducer(row[kernel.PRODUCER_ID], row[kernel.PRODUCER_EPOCH], window)
                )
        return found

    def _collect(self, turn: _Turn, first: int) -> None:
        """How far each connection has come, and its answers."""
        at = self._kernel.CONNECTIONS_AT
        count = len(turn.waiting) - first
        rows = self._words[at : at + count * _CONNECTION_WORDS].tolist()
        columns = [rows[column::_CONNECTION_WORDS] for column in range(_CONNECTION_WORDS)]
        direct: list[tuple[int, int, int]] = []
        for number, (taken_to, end, start, stop, requests) in enumerate(
            zip(*columns, strict=True), first
        ):
            if requests:
                turn.places[number] = (taken_to, end)
                if stop > start:
                    # Behind an answer that could not be sent whole others have to wait.
                    if number >= turn.first_received and number not in turn.replies:
                        direct.append((number, start, stop))
                    else:
                        turn.add_reply(number, bytes(self._replies[start:stop]))
        if direct:
            self._answer(turn, direct)

    def _answer(self, turn: _Turn, direct: Sequence[tuple[int, int, int]]) -> None:
        """Sends answers at once; what of them is not taken is left to the connection."""
        assert self.calls is not None
        # An append can complete another connection's request, and so end it.
        ready = [each for each in direct if turn.waiting[each[0]].is_open]
        sent = self.calls.send(
            [turn.waiting[number].descriptor for number, _, _ in ready],
            [start for _, start, _ in ready],
            [stop - start for _, start, stop in ready],
        )
        for (number, start, stop), count in zip(ready, sent, strict=True):
            if count < stop - start:
                turn.add_reply(number, bytes(self._replies[start + max(count, 0) : stop]))
