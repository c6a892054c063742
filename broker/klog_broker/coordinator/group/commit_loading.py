"""Loads committed offsets: a helper thread decodes runs of batches, the loop stores the offsets.

The batches that the kernel decodes together are a run (commit_kernel.py). The loop stores the
offsets of a run by pairs of group and topic. The Loader (loading.py) applies all other batches
record by record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klog_broker.coordinator.group.offsets import GroupOffsets, OffsetKey, TopicRows
from klog_broker.coordinator.group.packed_offsets import FIXED, PackedOffset
from klog_broker.coordinator.group.shard_state import GroupShardState
from klog_broker.coordinator.kernels import loaded_kernel
from klog_broker.coordinator.loading import LOAD_READ_BYTES, BatchRun, CheckedBytes
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.ids import Offset
from pyspark_klog.records import layout as at

COMMIT_KERNEL = "klog_broker.coordinator.group.commit_kernel"

MOST_ROWS = 32_768
"""Largest number of committed offsets that the kernel decodes from one region, the bytes of one
read of the log. Batches that exceed this number are applied record by record, so that the kernel's
arrays stay small."""

WORTHWHILE_BYTES = LOAD_READ_BYTES // 2
"""Size in bytes of a region (one read of the log) from which it pays off to load the compiled
kernel. A smaller region is usually the only or last one of its log."""

# The cost of storing offsets is counted in parts. _PARTS_AN_ELEMENT parts are one element, the unit
# (about 5 us) in which long work reports its cost to the event loop (slices.py). An offset costs
# one part. A pair of group and topic costs more: it is looked up, and its names are decoded.
_PARTS_AN_ELEMENT = 40
_PARTS_A_PAIR = 20
_PARTS_A_SPAN = 8
_PARTS_A_STEP = 4_000
# Largest number of rows of a span (rows that are stored with one call): the event loop can serve
# other requests only between two spans.
_MOST_ROWS_A_SPAN = 2_000
# For how many pairs of group and topic to cache the objects that store their offsets.
_MOST_TARGETS = 50_000


class _Rows(NamedTuple):
    """The committed offsets and tombstones that the kernel decoded from one read of the log: a row
    for each, sorted by pair of group and topic.

    The loop reads single numbers, which is faster in lists than in arrays. A span is a sequence of
    rows that are stored with one call: offsets of consecutive partitions of one pair, or a single
    row of ``outside_block`` (an offset with metadata, or a tombstone).
    """

    data: bytes
    pairs: list[list[int]]
    """For each pair of group and topic: the first PAIR_PUBLIC columns of the kernel's ``pairs``
    (where the two names are, which rows the pair has, how many of them are tombstones), then the
    numbers of the pair's first span (rows that are stored with one call) and of the span after its
    last."""
    span_rows: list[int]
    """The number of the first row of each span (rows that are stored with one call); the last item
    is the count of all rows."""
    span_partitions: list[int]
    """The partition number in the first row of each span (rows that are stored with one call)."""
    packed: bytes
    outside_block: dict[int, PackedOffset | None]
    """The rows that cannot be stored in the block, the bytearray that has a group's offsets in a
    topic in entries of a fixed size. By row number: an offset with metadata, or None for a
    tombstone."""


class CommitLoading:
    """Implements BulkLoading (loading.py), the interface to objects that apply many batches at once
    while a shard is loaded, for one shard of the group coordinator.

    At the first read of at least ``least_bytes`` of the log whose batches compiled code has
    checked, a helper thread calls ``load_kernel``, which imports the compiled function that decodes
    committed offsets, or returns None. Without it, the Loader applies all records one by one.
    """

    def __init__(
        self,
        state: GroupShardState,
        load_kernel: Callable[[], Any | None] = lambda: loaded_kernel(COMMIT_KERNEL),
        least_bytes: int = WORTHWHILE_BYTES,
    ) -> None:
        self._state = state
        self._load_kernel: Callable[[], Any | None] | None = load_kernel
        self._least_bytes = least_bytes
        self._kernel: Any | None = None
        self._targets: dict[bytes, tuple[GroupOffsets, TopicRows]] = {}

    # --- decoding the committed offsets of one read of the log, in a helper thread ---------------
    def read(self, checked: CheckedBytes, from_offset: Offset) -> Mapping[int, BatchRun]:
        """Decode the batches of one read of the log.

        Returns the runs (adjacent batches that were decoded together) by the byte position of
        their first batch in the bytes that were read.
        """
        if checked.table is None or not len(checked.table):
            return {}
        if self._load_kernel is not None and len(checked.data) >= self._least_bytes:
            self._kernel, self._load_kernel = self._load_kernel(), None
        if self._kernel is None:
            return {}
        return _Reading(self._kernel, checked, from_offset).runs()

    # --- storing the decoded offsets, in the event loop ------------------------------------------
    def apply(self, run: BatchRun) -> Steps:
        """Store the committed offsets of a run (batches that were decoded together) in the state of
        the shard, the partition of __consumer_offsets that is being loaded."""
        rows, targets, spent = run.rows, self._targets, 0
        data = rows.data
        for pair in rows.pairs[run.first_pair : run.pairs_end]:
            group_at, group_end, topic_at, topic_end, _, _, tombstones, span, span_end = pair
            if tombstones:
                group_id, topic = _names(data, group_at, group_end, topic_at, topic_end)
                yield from self._apply_each(rows, group_id, topic, range(span, span_end))
                continue
            # The pair's bytes in a record key: from the group's length field to the end of the
            # topic's name.
            name = data[group_at - 2 : topic_end]
            target = targets.get(name)
            if target is None or not target[1]:
                if len(targets) >= _MOST_TARGETS:
                    targets.clear()
                names = _names(data, group_at, group_end, topic_at, topic_end)
                target = targets[name] = self._state.rows_for(*names)
            spent += _PARTS_A_PAIR
            for each in range(span, span_end):
                spent += _PARTS_A_SPAN + _store_span(rows, each, *target)
                if spent >= _PARTS_A_STEP:
                    yield spent // _PARTS_AN_ELEMENT
                    spent = 0
        yield spent // _PARTS_AN_ELEMENT + 1

    def _apply_each(self, rows: _Rows, group_id: str, topic: str, spans: range) -> Steps:
        """Apply the offsets and tombstones of a group in a topic, in the order of the log."""
        state, spent = self._state, 0
        for span in spans:
            if rows.outside_block.get(rows.span_rows[span], b"") is None:
                state.remove_offset(OffsetKey(group_id, topic, rows.span_partitions[span]))
                spent += _PARTS_AN_ELEMENT
            else:
                count = _store_span(rows, span, *state.rows_for(group_id, topic))
                spent += _PARTS_AN_ELEMENT + count
            if spent >= _PARTS_A_STEP:
                yield spent // _PARTS_AN_ELEMENT
                spent = 0
        yield spent // _PARTS_AN_ELEMENT


def _store_span(rows: _Rows, span: int, book: GroupOffsets, kept: TopicRows) -> int:
    """Store the rows of a span with one call: the offsets of consecutive partitions, or a single
    offset with metadata.

    Returns the number of offsets.
    """
    first, end = rows.span_rows[span], rows.span_rows[span + 1]
    alone = rows.outside_block.get(first)
    if alone is None:
        packed = rows.packed[first * FIXED.size : end * FIXED.size]
        book.put_adjacent(kept, rows.span_partitions[span], packed)
    else:
        book.put_outside_block(kept, rows.span_partitions[span], alone)
    return end - first


def _names(
    data: bytes, group_at: int, group_end: int, topic_at: int, topic_end: int
) -> tuple[str, str]:
    """Decode the names of a group and a topic; all groups share one string of the topic's name."""
    group_id = str(data[group_at:group_end], "utf-8")
    return group_id, sys.intern(str(data[topic_at:topic_end], "utf-8"))


class _Reading:
    """Decodes a region (the bytes of one read of the log) into arrays that the kernel fills."""

    def __init__(self, kernel: Any, checked: CheckedBytes, from_offset: Offset) -> None:
        import numpy as np

        from pyspark_klog.records.kernels import scan

        self._np, self._scan, self._kernel = np, scan, kernel
        table: Any = checked.table
        self._table = table
        self._data, self._sections = self._sections_of(checked)
        # RECORD_COUNT may be -1 for a message of an older format.
        rows = min(int(table[:, scan.RECORD_COUNT].clip(0).sum()), MOST_ROWS)
        slots = 16
        while slots < 2 * rows:
            slots *= 2
        self._slots = np.zeros(slots, dtype=np.int64)
        self._pairs = np.empty(rows * kernel.PAIR_COLUMNS, dtype=np.int64)
        self._found = np.empty(rows * kernel.FOUND_COLUMNS, dtype=np.int64)
        self._partitions = np.empty(rows, dtype=np.int64)
        self._texts = np.empty(rows * kernel.TEXT_COLUMNS, dtype=np.int64)
        self._packed = np.empty(rows * kernel.PACKED_BYTES, dtype=np.uint8)
        self._state = np.zeros(kernel.STATE_FIELDS, dtype=np.int64)
        self._state[kernel.STATE_FROM_OFFSET] = from_offset

    def runs(self) -> dict[int, BatchRun]:
        kernel, state, table, scan = self._kernel, self._state, self._table, self._scan
        flat = table.reshape(-1)
        bounds: list[tuple[int, int, int, int]] = []
        while state[kernel.STATE_ROW] < len(table):
            row, first_pair = int(state[kernel.STATE_ROW]), int(state[kernel.STATE_PAIRS])
            kernel.read_run(
                self._buffer(),
                flat,
                self._sections,
                self._slots,
                self._pairs,
                self._found,
                self._partitions,
                self._texts,
                self._packed,
                state,
            )
            rows_end = int(state[kernel.STATE_ROW])
            if rows_end > row:
                bounds.append((row, rows_end, first_pair, int(state[kernel.STATE_PAIRS])))
            if rows_end < len(table):
                # The kernel does not decode this batch: the loader applies it record by record.
                # Continue with the batch after it.
                next_offset = int(table[rows_end, scan.LAST_OFFSET]) + 1
                if state[kernel.STATE_FROM_OFFSET] < next_offset <= at.INT64_MAX:
                    state[kernel.STATE_FROM_OFFSET] = next_offset
                state[kernel.STATE_ROW] = rows_end + 1
        rows = self._rows()
        runs = {}
        for row, rows_end, first_pair, pairs_end in bounds:
            last = table[rows_end - 1]
            runs[int(table[row, scan.POSITION])] = BatchRun(
                int(last[scan.POSITION] + last[scan.SIZE_BYTES]),
                Offset(int(table[row:rows_end, scan.LAST_OFFSET].max()) + 1),
                rows,
                first_pair,
                pairs_end,
            )
        return runs

    def _buffer(self) -> Any:
        buffer = self._np.frombuffer(self._data, dtype=self._np.uint8)
        buffer.flags.writeable = False
        return buffer

    def _rows(self) -> _Rows:
        np, kernel, state = self._np, self._kernel, self._state
        rows, pairs = int(state[kernel.STATE_ROWS]), int(state[kernel.STATE_PAIRS])
        texts = self._texts.reshape(-1, kernel.TEXT_COLUMNS)[:rows]
        packed = self._packed[: rows * kernel.PACKED_BYTES].tobytes()
        partitions = self._partitions[:rows]
        starts, ends = texts[:, kernel.TEXT_AT], texts[:, kernel.TEXT_END]
        of_pairs = self._pairs.reshape(-1, kernel.PAIR_COLUMNS)[:pairs, : kernel.PAIR_PUBLIC]
        is_alone = (starts < 0) | (ends > starts)
        # For each row, whether a span (rows that are stored with one call) starts at the row.
        begins = np.ones(rows + 1, dtype=np.bool_)
        begins[1:-1] = (np.diff(partitions) != 1) | is_alone[1:] | is_alone[:-1]
        begins[of_pairs[:, kernel.PAIR_ROWS]] = True
        begins[::_MOST_ROWS_A_SPAN] = True
        spans = np.flatnonzero(begins)
        bounds = of_pairs[:, [kernel.PAIR_ROWS, kernel.PAIR_ROWS_END]]
        alone: dict[int, PackedOffset | None] = {}
        rows_alone = np.flatnonzero(is_alone)
        for row, (start, end) in zip(rows_alone.tolist(), texts[rows_alone].tolist(), strict=True):
            fixed = packed[row * kernel.PACKED_BYTES : (row + 1) * kernel.PACKED_BYTES]
            alone[row] = None if start < 0 else fixed + self._data[start:end]
        return _Rows(
            self._data,
            np.hstack((of_pairs, np.searchsorted(spans, bounds))).tolist(),
            spans.tolist(),
            partitions[spans[:-1]].tolist(),
            packed,
            alone,
        )

    def _sections_of(self, checked: CheckedBytes) -> tuple[bytes, Any]:
        """Return the bytes that were read from the log, with the decompressed records appended, and
        the start and end of each batch's records in the returned bytes."""
        np, scan, kernel, table = self._np, self._scan, self._kernel, self._table
        sections = np.empty((len(table), kernel.SECTION_COLUMNS), dtype=np.int64)
        sections[:, kernel.SECTION_AT] = table[:, scan.POSITION] + at.RECORDS_AT
        sections[:, kernel.SECTION_END] = table[:, scan.POSITION] + table[:, scan.SIZE_BYTES]
        is_compressed = (table[:, scan.ATTRIBUTES] & at.CODEC_MASK) != 0
        if not is_compressed.any():
            return checked.data, sections.reshape(-1)
        parts: list[bytes | bytearray] = [checked.data]
        end = len(checked.data)
        for row in np.flatnonzero(is_compressed).tolist():
            section = checked.inflated.get(int(table[row, scan.POSITION]))
            sections[row, kernel.SECTION_AT] = -1 if section is None else end
            if section is not None:
                parts.append(section)
                end += len(section)
                sections[row, kernel.SECTION_END] = end
        return b"".join(parts), sections.reshape(-1)
