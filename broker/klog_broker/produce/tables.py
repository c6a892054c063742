"""Writes the input of a produce plan (the kernel's list of appends for many Produce requests) into
the kernel's table, and reads the plan from the table.

The table is an array of 64-bit words with one section of equal rows for each kind of object, such
as connections, slots (partitions) and producers. The constants of kernel.py are the positions of
words within a row. Positions in the table, in the received bytes (arena) and in the responses are
plain integers. One call of ``struct`` packs or unpacks a whole row, because a row has up to 40
words, and an event-loop turn can have hundreds of rows.
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
"""The words of a partition's row (slot) in the kernel's table, up to SLOT_OUT: the partition's
facts (such as its next offset and limits), which the kernel updates for each batch that it accepts,
and the count, size, index entries and position of these batches."""
CONNECTION_ROW = Struct("=5q8x")
"""The words of a connection's row in the kernel's table. Skips the last one, a number for the
connection's principal, which only the compiled kernel reads."""
BATCH_ROW = Struct("=13q")


class TouchedSlot(NamedTuple):
    """A partition to which the batches of a produce plan (the kernel's list of appends) are
    appended."""

    number: int
    row: tuple[int, ...]
    data: memoryview  # the batches' bytes as they are to be written to the log
    index_entries: int


class DelayedBatch(NamedTuple):
    """A batch of an acks=all request: the response waits until the high watermark has passed the
    batch."""

    slot: int
    end_offset: int
    error_code_at: int  # where the batch's error code is in the encoded responses
    # how many bytes after the error code an error response sets to 0xFF (offsets and times of -1)
    ones: int
    timeout_ms: int


class PlanTables:
    """The produce kernel's table (its input and its results, as 64-bit words), and its arrays of
    topic names, responses and batches. Loop thread only."""

    def __init__(self, kernel: Any, arena: memoryview, max_request_bytes: int) -> None:
        import numpy as np

        self._kernel = kernel
        self._arena = arena
        self._memory = bytearray(kernel.TABLE_WORDS * WORD_BYTES)
        self._words = memoryview(self._memory).cast("q")
        self._names = bytearray(kernel.NAMES_BYTES)
        self.responses = memoryview(bytearray(kernel.RESPONSES_BYTES))
        """The responses that the compiled kernel has written for the latest produce plan (list of
        appends), connection by connection."""
        self._batches = memoryview(bytearray(len(arena)))
        self._arguments = (
            np.frombuffer(arena, np.uint8),
            np.frombuffer(self._memory, np.int64),
            np.frombuffer(self._names, np.uint8),
            np.frombuffer(self.responses, np.uint8),
            np.frombuffer(self._batches, np.uint8),
        )
        self._round = 0
        self._usual_version = kernel.LAST_VERSION
        self._words[kernel.HEAD_MAX_REQUEST_BYTES] = max_request_bytes

    # -- beginning a produce plan, calling the kernel, counting its requests ------------------

    def begin_plan(
        self, places: Sequence[tuple[int, int]], principals: Sequence[int] | None = None
    ) -> None:
        """Begin a new produce plan (list of appends). ``places``: start and end of each
        connection's bytes in the arena (receive buffer). ``principals``: the number of each
        connection's principal (security/principal_numbers.py); None if every principal may write to
        every topic and use every transactional id. A plan with principals leaves requests with a
        transactional id to the ordinary Produce handler, which checks access to the id."""
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
            kernel.HEAD_RESPONSE_END,
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
        """Call the kernel, which begins the produce plan (list of appends), or continues it with
        the facts about partitions and producers that the caller has written into the table. Return
        the kernel's status (DONE, FULL, NEED_SLOT, ...)."""
        status: int = self._kernel.plan_produce(*self._arguments)
        return status

    @property
    def needed(self) -> int:
        """After the status NEED_SLOT, NEED_PRODUCER or NEED_TRANSACTION: the number of the slot (a
        partition's row in the kernel's table) or of the producer's row that the caller has to fill
        before the next call of :meth:`plan`."""
        number: int = self._words[self._kernel.HEAD_NEEDED]
        return number

    @property
    def requests(self) -> int:
        """How many Produce requests the compiled kernel has accepted in the latest produce plan
        (list of appends); another plan or the ordinary Produce handler serves the others."""
        number: int = self._words[self._kernel.HEAD_REQUESTS]
        return number

    def head_at(self, position: int) -> int:
        """Return the head (API key and version in one number) of the request at that position in
        the arena (receive buffer)."""
        return int.from_bytes(self._arena[position + 4 : position + 8], "big")

    def versions(self) -> list[tuple[int, int]]:
        """Return pairs of a Produce version and the number of requests with that version that the
        compiled kernel has accepted. The kernel must have accepted at least one request."""
        requests, at = self.requests, self._kernel.HEAD_VERSIONS
        # Nearly all clients use the same version of Produce, so first compare with the version that
        # an earlier produce plan had.
        if self._words[at + self._usual_version] == requests:
            return [(self._usual_version, requests)]
        counts = self._words[at : self._kernel.HEAD_WORDS].tolist()
        found = [(version, count) for version, count in enumerate(counts) if count]
        self._usual_version = found[-1][0]
        return found

    @property
    def connection(self) -> int:
        """After the status FULL (the kernel's table has no space for the next request): the number
        of that request's connection, with which another produce plan (list of appends) has to
        begin."""
        number: int = self._words[self._kernel.HEAD_CONNECTION]
        return number

    # -- slots of the kernel's table: one row for each partition that requests name -----------

    @property
    def slots(self) -> int:
        """How many slots (partitions' rows of the kernel's table) are in use. A slot stays in use
        for later requests, until :meth:`forget_slots` is called."""
        number: int = self._words[self._kernel.HEAD_SLOTS]
        return number

    def forget_slots(self) -> None:
        """Free all slots (partitions' rows of the kernel's table). When a Produce request names a
        partition later, the partition is looked up again and gets a new slot."""
        kernel = self._kernel
        self._words[kernel.HEAD_SLOTS] = 0
        start = kernel.SLOT_BUCKETS_AT * WORD_BYTES
        end = kernel.PRODUCER_BUCKETS_AT * WORD_BYTES
        self._memory[start:end] = bytes(end - start)

    def slot_key(self, number: int) -> tuple[bytes, bool, int, int]:
        """Return the key of a slot (a partition's row of the kernel's table): topic name or id,
        whether it is an id, partition, and the number (security/principal_numbers.py) of the
        principal that writes."""
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
        """Make the compiled kernel leave requests for the slot's partition to the ordinary Produce
        handler, in this produce plan (list of appends)."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        words[at + kernel.SLOT_ROUND] = self._round
        words[at + kernel.SLOT_STATE] = kernel.SLOT_UNAVAILABLE

    def join_slots(self, number: int, other: int) -> None:
        """Let the compiled kernel use the slot ``other`` (a row of its table) instead of the slot
        ``number`` in this produce plan. A partition has several slots if requests name its topic by
        name and by id, or if several principals write."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        words[at + kernel.SLOT_ROUND] = self._round
        words[at + kernel.SLOT_STATE] = kernel.SLOT_READY
        words[at + kernel.SLOT_TARGET] = kernel.SLOTS_AT + other * kernel.SLOT_WORDS

    def fill_slot(self, number: int, facts: PlanFacts, acks_all: int) -> None:
        """Write the facts of a partition, such as its next offset and limits, into the partition's
        slot (row) of the kernel's table, for one produce plan. ``acks_all`` is ACKS_ALL_NEVER,
        ACKS_ALL_AT_ONCE or ACKS_ALL_LATER: whether the kernel leaves requests with acks=all to the
        ordinary Produce handler, answers them after the append, or after the replication."""
        kernel, words = self._kernel, self._words
        at = kernel.SLOTS_AT + number * kernel.SLOT_WORDS
        limits = facts.limits
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
            limits.size_bytes,
            limits.segment_bytes,
            limits.last_offset_limit,
            limits.timestamp_limit_ms,
            limits.bytes_since_index_entry,
            limits.index_interval_bytes,
            limits.index_rows,
            limits.max_timestamp_ms,
            limits.max_timestamp_offset,
            acks_all,
            *(0, 0, 0, 0),
        )
        words[at + kernel.SLOT_TARGET] = at
        words[at + kernel.SLOT_FIRST_OFFSET] = facts.next_offset
        words[at + kernel.SLOT_LONGEST_MS] = limits.longest_ms
        words[at + kernel.SLOT_UNTIMED_LIMIT_MS] = limits.untimed_limit_ms

    # -- producers' rows: one for each producer id and partition in this plan -----------------

    def producer_key(self, number: int) -> tuple[int, int]:
        """Return the number of the slot (the partition's row in the kernel's table) and the
        producer id that belong to the producer's row ``number``."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        slot_at = words[at + kernel.PRODUCER_SLOT]
        return (slot_at - kernel.SLOTS_AT) // kernel.SLOT_WORDS, words[at + kernel.PRODUCER_ID]

    def fill_producer(self, number: int, entry: ProducerEntry | None) -> None:
        """Write the producer's state in the log into the producer's row of the kernel's table.
        ``entry`` is None if the log has no state of the producer."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        if entry is None:
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_NEW
        else:
            # The last sequence is -1 if a transaction marker was the first batch of the producer's
            # epoch: then the next sequence must be 0.
            words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_KNOWN
            words[at + kernel.PRODUCER_EPOCH] = entry.producer_epoch
            words[at + kernel.PRODUCER_LAST_SEQUENCE] = entry.last_sequence
            words[at + kernel.PRODUCER_IN_TRANSACTION] = entry.current_transaction_first_offset >= 0

    def first_batch(self, number: int) -> FirstBatch:
        """Return the first batch of the producer among the requests that the compiled kernel plans.
        With the status NEED_TRANSACTION the kernel asks whether this batch may begin a
        transaction."""
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
        """Let the producer begin its transaction with the batch ``first``, which the log has
        checked: write a producer state into the kernel's table with which the kernel accepts the
        batch."""
        kernel, words = self._kernel, self._words
        at = kernel.PRODUCERS_AT + number * kernel.PRODUCER_WORDS
        words[at + kernel.PRODUCER_STATE] = kernel.PRODUCER_KNOWN
        words[at + kernel.PRODUCER_EPOCH] = first.producer_epoch
        words[at + kernel.PRODUCER_LAST_SEQUENCE] = (first.first_sequence - 1) & MAX_SEQUENCE
        words[at + kernel.PRODUCER_IN_TRANSACTION] = 1
        words[at + kernel.PRODUCER_BEGINS] = 1

    @property
    def has_delayed(self) -> bool:
        """Whether any response waits until the followers have the batches that the compiled kernel
        has accepted (acks=all)."""
        return bool(self._words[self._kernel.HEAD_HELD])

    def held(self) -> dict[int, list[DelayedBatch]]:
        """Return the batches whose response waits until the followers have them (acks=all), by
        connection number."""
        kernel, words = self._kernel, self._words
        found: dict[int, list[DelayedBatch]] = {}
        if not words[kernel.HEAD_HELD]:
            return found
        start = kernel.ROWS_AT * WORD_BYTES
        size = words[kernel.HEAD_ROWS] * BATCH_ROW.size
        for row in BATCH_ROW.iter_unpack(memoryview(self._memory)[start : start + size]):
            if row[kernel.ROW_ANSWER_AT] >= 0:
                found.setdefault(row[kernel.ROW_CONNECTION], []).append(
                    DelayedBatch(
                        (row[kernel.ROW_SLOT] - kernel.SLOTS_AT) // kernel.SLOT_WORDS,
                        row[kernel.ROW_OFFSET] + row[kernel.ROW_LAST_DELTA] + 1,
                        row[kernel.ROW_ANSWER_AT],
                        row[kernel.ROW_ANSWER_ONES],
                        row[kernel.ROW_TIMEOUT_MS],
                    )
                )
        return found

    # -- results of the compiled kernel: responses and batches --------------------------------

    def _column(self, field: int, count: int) -> memoryview:
        """Return the word ``field`` in the rows of the first ``count`` connections in the kernel's
        table."""
        kernel = self._kernel
        at = kernel.CONNECTIONS_AT + field
        return self._words[at : at + count * kernel.CONNECTION_WORDS : kernel.CONNECTION_WORDS]

    def all_taken(self, count: int) -> bool:
        """Return whether the compiled kernel has served all requests of the first ``count``
        connections, so that no received byte is left to the ordinary Produce handler."""
        kernel = self._kernel
        return self._column(kernel.CONNECTION_AT, count) == self._column(
            kernel.CONNECTION_END, count
        )

    def response_ranges(self, count: int) -> tuple[list[int], list[int]]:
        """Return, for each of the first ``count`` connections, where its responses start and end in
        ``responses`` (the array of encoded responses)."""
        kernel = self._kernel
        return (
            self._column(kernel.CONNECTION_RESPONSES_AT, count).tolist(),
            self._column(kernel.CONNECTION_RESPONSES_END, count).tolist(),
        )

    def connections(self, count: int) -> Iterator[tuple[int, ...]]:
        """Yield a row for each of the first ``count`` connections: start and end of its bytes in
        the arena (receive buffer) that the compiled kernel has not served, start and end of its
        responses in ``responses`` (the array of encoded responses), and how many requests the
        kernel has served."""
        start = self._kernel.CONNECTIONS_AT * WORD_BYTES
        rows = memoryview(self._memory)[start : start + count * CONNECTION_ROW.size]
        return CONNECTION_ROW.iter_unpack(rows)

    def touched(self) -> list[TouchedSlot]:
        """Return the partitions for which the compiled kernel has accepted batches."""
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
        """Return, in the order of ``touched``, the changes that each partition's log has to make to
        its state after the partition's batches are written to its file: offsets, sizes, timestamps,
        index entries and producers."""
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
        """Return the entries for the index files of logs that belong to the accepted batches, by
        slot number (the number of the partition's row in the kernel's table)."""
        kernel, words = self._kernel, self._words
        found: dict[int, list[PlannedIndexEntry]] = {}
        at = kernel.INDEX_ROWS_AT
        flat = words[at : at + words[kernel.HEAD_INDEX_ROWS] * kernel.INDEX_WORDS].tolist()
        rows = zip(*[iter(flat)] * kernel.INDEX_WORDS, strict=True)
        for number, of_slot in groupby(rows, itemgetter(kernel.INDEX_SLOT)):
            found.setdefault(number, []).extend([each[1:] for each in of_slot])
        return found

    def _producers(self) -> dict[int, list[PlannedProducer]]:
        """Return the producers of the batches that the compiled kernel has accepted. The keys are
        the positions, in the kernel's table, of the slots (rows) of their partitions."""
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
