"""Writes and reads the produce kernel's table: a plan's input and its outcome.

The kernel's constants (kernel.py) say which word is which. Positions in the arena, in the answers
and in the table itself are plain numbers. One row of a section is packed or unpacked by one call:
a row has up to 40 words, and a turn can have hundreds of rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

from klog_broker.log.producers.producer_state import (
    MAX_SEQUENCE,
    ProducerBatch,
    ProducerEntry,
    ProducerHead,
)
from klog_broker.log.segment.planned_append import (
    NO_BEGIN,
    FirstBatch,
    PlanFacts,
    PlannedAppend,
    PlannedIndexEntry,
    PlannedProducer,
)
from pyspark_klog.ids import Offset

WORD_BYTES = 8
SLOT_ROW = Struct("=23q")
"""A slot's words up to SLOT_OUT: the partition's facts, which a plan updates, and its outcome."""
CONNECTION_ROW = Struct("=5q8x")
"""A connection's words, without the number of its principal."""
BATCH_ROW = Struct("=13q")


class TouchedSlot(NamedTuple):
    """A partition for which a plan has batches."""

    number: int
    row: tuple[int, ...]
    data: memoryview  # the batches as they are to be written
    index_entries: int


class HeldBatch(NamedTuple):
    """A batch that is answered once the watermark has passed it."""

    slot: int
    end_offset: int
    answer_at: int  # in `replies`: its error code
    ones: int  # so many bytes behind that are all ones if the answer is an error
    timeout_ms: int


class PlanTables:
    """The memory that one kernel works on. Loop thread only."""

    def __init__(self, kernel: Any, arena: memoryview, max_request_bytes: int) -> None:
        import numpy as np

        self._kernel = kernel
        self._arena = arena
        self._memory = bytearray(kernel.TABLE_WORDS * WORD_BYTES)
        self._words = memoryview(self._memory).cast("q")
        self._names = bytearray(kernel.NAMES_BYTES)
        self.replies = memoryview(bytearray(kernel.REPLIES_BYTES))
        """A plan's answers, connection by connection."""
        self._batches = memoryview(bytearray(len(arena)))
        self._arguments = (
            np.frombuffer(arena, np.uint8),
            np.frombuffer(self._memory, np.int64),
            np.frombuffer(self._names, np.uint8),
            np.frombuffer(self.replies, np.uint8),
            np.frombuffer(self._batches, np.uint8),
        )
        self._round = 0
        self._usual_version = kernel.LAST_VERSION
        self._words[kernel.HEAD_MAX_REQUEST_BYTES] = max_request_bytes

    # -- one plan -----------------------------------------------------------------------------

    def begin(
        self, places: Sequence[tuple[int, int]], principals: Sequence[int] | None = None
    ) -> None:
        """Begin a new plan. ``places``: start and end of each connection's bytes in the arena.
        ``principals``: the number of each connection's principal; None if every principal may
        write to every topic and use every transactional id. A plan with principals takes no
        requests with a transactional id."""
        kernel, words = self._kernel, self._words
        self._round += 1
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
            kernel.HEAD_HELD,
        ):
            words[field] = 0
        count = len(places)
        at, size = kernel.CONNECTIONS_AT * WORD_BYTES, count * CONNECTION_ROW.size
        self._memory[at : at + size] = bytes(size)
        starts, ends = zip(*places, strict=True) if places else ((), ())
        self._column(kernel.CONNECTION_AT, count)[:] = memoryview(array("q", starts))
        self._column(kernel.CONNECTION_END, count)[:] = memoryview(array("q", ends))
        words[kernel.HEAD_LEAVES_TRANSACTIONS] = principals is not None
        if principals is not None:
            numbers = memoryview(array("q", principals))
            self._column(kernel.CONNECTION_PRINCIPAL, count)[:] = numbers

    def plan(self) -> int:
        """Lets the kernel begin or go on; returns its status (DONE, FULL, NEED_SLOT, ...)."""
        status: int = self._kernel.plan_produce(*self._arguments)
        return status

    @property
    def needed(self) -> int:
        """After NEED_SLOT, NEED_PRODUCER or NEED_TRANSACTION: the number of the slot or producer to
        be filled."""
        number: int = self._words[self._kernel.HEAD_NEEDED]
        return number

    @property
    def requests(self) -> int:
        """How many requests the plan takes."""
        number: int = self._words[self._kernel.HEAD_REQUESTS]
        return number

    def head_at(self, position: int) -> int:
        """The head (metrics/requests.py) of the request at that position in the arena."""
        return int.from_bytes(self._arena[position + 4 : position + 8], "big")

    def versions(self) -> list[tuple[int, int]]:
        """How many requests of which version the plan takes, if it takes any."""
        requests, at = self.requests, self._kernel.HEAD_VERSIONS
        # Nearly all clients speak one version.
        if self._words[at + self._usual_version] == requests:
            return [(self._usual_version, requests)]
        counts = self._words[at : self._kernel.HEAD_WORDS].tolist()
        found = [(version, count) for version, count in enumerate(counts) if count]
        self._usual_version = found[-1][0]
        return found

    @property
    def connection(self) -> int:
        """After FULL: the number of the connection at which the plan ended."""
        number: int = self._words[self._kernel.HEAD_CONNECTION]
        return number

    # -- slots --------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many slots are in use; they are kept from plan to plan."""
        number: int = self._words[self._kernel.HEAD_SLOTS]
        return number

    def forget_slots(self) -> None:
        """The next plan finds no slot in use."""
        kernel = self._kernel
        self._words[kernel.HEAD_SLOTS] = 0
        start = kernel.SLOT_BUCKETS_AT * WORD_BYTES
        end = kernel.PRODUCER_BUCKETS_AT * WORD_BYTES
        self._memory[start:end] = bytes(end - start)

    def slot_key(self, number: int) -> tuple[bytes, bool, int, int]:
        """The key of a slot: (a topic's name or id, whether it is an id, partition, the number of
        the principal that writes)."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        name_at = number * kernel.NAME_BYTES
        return (
            bytes(self._names[name_at : name_at + words[at + kernel.SLOT_NAME_BYTES]]),
            bool(words[at + kernel.SLOT_BY_ID]),
            words[at + kernel.SLOT_PARTITION],
            words[at + kernel.SLOT_PRINCIPAL],
        )

    def leave_slot(self, number: int) -> None:
        """In this plan requests for the slot are left to the generic handler."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        words[at + kernel.SLOT_ROUND] = self._round
        words[at + kernel.SLOT_STATE] = kernel.SLOT_UNAVAILABLE

    def join_slots(self, number: int, other: int) -> None:
        """The slot ``other`` is the same partition, and stands for both in this plan."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        words[at + kernel.SLOT_ROUND] = self._round
        words[at + kernel.SLOT_STATE] = kernel.SLOT_READY
        words[at + kernel.SLOT_TARGET] = kernel.SLOTS_AT + other * kernel.SLOT_WORDS

    def fill_slot(self, number: int, facts: PlanFacts, acks_all: int) -> None:
        """Write the facts of the slot's partition that this plan needs."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        room = facts.room
        SLOT_ROW.pack_into(
            self._memory,
            at * WORD_BYTES,
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
            acks_all,
            *(0, 0, 0, 0),
        )
        words[at + kernel.SLOT_TARGET] = at
        words[at + kernel.SLOT_FIRST_OFFSET] = facts.next_offset
        words[at + kernel.SLOT_LONGEST_MS] = room.longest_ms
        words[at + kernel.SLOT_UNTIMED_LIMIT_MS] = room.untimed_limit_ms

    # -- producers ----------------------------------------------------------------------------

    def producer_key(self, number: int) -> tuple[int, int]:
        """A producer's identity: (the number of its slot, producer id)."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        slot_at = words[at + kernel.PRODUCER_SLOT]
        return (slot_at - kernel.SLOTS_AT) // kernel.SLOT_WORDS, words[at + kernel.PRODUCER_ID]

    def fill_producer(self, number: int, entry: ProducerEntry | None) -> None:
        """Write what the log knows of the producer; ``entry`` is None if it knows nothing."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        if entry is None:
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_NEW
        else:
            # An epoch that began with a marker has no batches: -1, its first sequence is to be 0.
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_KNOWN
            words[at + kernel.PRODUCER_EPOCH] = entry.producer_epoch
            words[at + kernel.PRODUCER_LAST_SEQUENCE] = entry.last_sequence
            words[at + kernel.PRODUCER_IN_TRANSACTION] = entry.current_transaction_first_offset >= 0

    def first_batch(self, number: int) -> FirstBatch:
        """After NEED_TRANSACTION: the batch that is looked at."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        id_at = words[kernel.HEAD_TRANSACTIONAL_ID_AT]
        id_end = id_at + words[kernel.HEAD_TRANSACTIONAL_ID_BYTES]
        window = at + kernel.PRODUCER_WINDOW
        return FirstBatch(
            str(self._arena[id_at:id_end], "utf-8"),
            ProducerHead(
                words[at + kernel.PRODUCER_ID],
                words[at + kernel.PRODUCER_EPOCH],
                words[window],
                words[window + 1],
            ),
            words[kernel.HEAD_VERSION],
        )

    def begin_transaction(self, number: int, first: ProducerHead) -> None:
        """The producer may begin its transaction with this batch: nothing else is asked of it."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_KNOWN
        words[at + kernel.PRODUCER_EPOCH] = first.producer_epoch
        words[at + kernel.PRODUCER_LAST_SEQUENCE] = (first.first_sequence - 1) & MAX_SEQUENCE
        words[at + kernel.PRODUCER_IN_TRANSACTION] = 1
        words[at + kernel.PRODUCER_BEGINS] = 1

    @property
    def has_held(self) -> bool:
        """Whether batches of the plan are answered later."""
        return bool(self._words[self._kernel.HEAD_HELD])

    def held(self) -> dict[int, list[HeldBatch]]:
        """By connection: the batches of the plan that are answered later."""
        kernel, words = self._kernel, self._words
        found: dict[int, list[HeldBatch]] = {}
        if not words[kernel.HEAD_HELD]:
            return found
        start = kernel.ROWS_AT * WORD_BYTES
        size = words[kernel.HEAD_ROWS] * BATCH_ROW.size
        for row in BATCH_ROW.iter_unpack(memoryview(self._memory)[start : start + size]):
            if row[kernel.ROW_ANSWER_AT] >= 0:
                found.setdefault(row[kernel.ROW_CONNECTION], []).append(
                    HeldBatch(
                        (row[kernel.ROW_SLOT] - kernel.SLOTS_AT) // kernel.SLOT_WORDS,
                        row[kernel.ROW_OFFSET] + row[kernel.ROW_LAST_DELTA] + 1,
                        row[kernel.ROW_ANSWER_AT],
                        row[kernel.ROW_ANSWER_ONES],
                        row[kernel.ROW_TIMEOUT_MS],
                    )
                )
        return found

    # -- what a plan comes to -----------------------------------------------------------------

    def _column(self, field: int, count: int) -> memoryview:
        """One word of each of the plan's first ``count`` connections."""
        kernel = self._kernel
        at = kernel.CONNECTIONS_AT + field
        return self._words[at : at + count * kernel.CONNECTION_WORDS : kernel.CONNECTION_WORDS]

    def all_taken(self, count: int) -> bool:
        """Whether the plan has taken every byte of its first ``count`` connections."""
        kernel = self._kernel
        return self._column(kernel.CONNECTION_AT, count) == self._column(
            kernel.CONNECTION_END, count
        )

    def answers(self, count: int) -> tuple[list[int], list[int]]:
        """Where in ``replies`` the answers of the plan's first ``count`` connections start, and
        where they end."""
        kernel = self._kernel
        return (
            self._column(kernel.CONNECTION_REPLIES_AT, count).tolist(),
            self._column(kernel.CONNECTION_REPLIES_END, count).tolist(),
        )

    def connections(self, count: int) -> Iterator[tuple[int, ...]]:
        """How far the plan's first ``count`` connections have come, a row each: start and end of
        the bytes in the arena that were not taken, start and end of the answers in ``replies``,
        and how many requests were taken."""
        start = self._kernel.CONNECTIONS_AT * WORD_BYTES
        rows = memoryview(self._memory)[start : start + count * CONNECTION_ROW.size]
        return CONNECTION_ROW.iter_unpack(rows)

    def touched(self) -> list[TouchedSlot]:
        """The partitions with batches in this plan."""
        kernel, words = self._kernel, self._words
        count = words[kernel.HEAD_TOUCHED]
        found: list[TouchedSlot] = []
        for slot_at in words[kernel.TOUCHED_AT : kernel.TOUCHED_AT + count].tolist():
            row = SLOT_ROW.unpack_from(self._memory, slot_at * WORD_BYTES)
            start = row[kernel.SLOT_OUT]
            found.append(
                TouchedSlot(
                    (slot_at - kernel.SLOTS_AT) // kernel.SLOT_WORDS,
                    row,
                    self._batches[start : start + row[kernel.SLOT_BYTES]],
                    row[kernel.SLOT_INDEX_ROWS],
                )
            )
        return found

    def appends(self, touched: Sequence[TouchedSlot]) -> list[PlannedAppend]:
        """For each of these partitions: what is to be committed once its batches are written."""
        kernel, words = self._kernel, self._words
        producers = self._producers()
        entries = self._index_entries()
        appends: list[PlannedAppend] = []
        for number, row, data, _ in touched:
            at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
            appends.append(
                PlannedAppend(
                    words[at + kernel.SLOT_FIRST_OFFSET],
                    row[kernel.SLOT_NEXT_OFFSET],
                    len(data),
                    words[at + kernel.SLOT_FIRST_TIMESTAMP_MS],
                    row[kernel.SLOT_SINCE_INDEX_ENTRY],
                    row[kernel.SLOT_MAX_TIMESTAMP_MS],
                    row[kernel.SLOT_MAX_TIMESTAMP_OFFSET],
                    entries.get(number, ()),
                    producers.get(at, ()),
                )
            )
        return appends

    def _index_entries(self) -> dict[int, list[PlannedIndexEntry]]:
        """The index entries, by slot number."""
        kernel, words = self._kernel, self._words
        found: dict[int, list[PlannedIndexEntry]] = {}
        at = kernel.INDEX_ROWS_AT
        flat = words[at : at + words[kernel.HEAD_INDEX_ROWS] * kernel.INDEX_WORDS].tolist()
        rows = zip(*[iter(flat)] * kernel.INDEX_WORDS, strict=True)
        for number, of_slot in groupby(rows, itemgetter(kernel.INDEX_SLOT)):
            found.setdefault(number, []).extend([each[1:] for each in of_slot])
        return found

    def _producers(self) -> dict[int, list[PlannedProducer]]:
        """The producers that wrote, by the position at which their slot's words begin."""
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
                begins = row[kernel.PRODUCER_BEGINS]
                found.setdefault(row[kernel.PRODUCER_SLOT], []).append(
                    PlannedProducer(
                        row[kernel.PRODUCER_ID],
                        row[kernel.PRODUCER_EPOCH],
                        window,
                        row[kernel.PRODUCER_FIRST_OFFSET] if begins else NO_BEGIN,
                    )
                )
        return found
