"""Loading committed offsets in runs: read by a kernel beside the loop, kept in the loop by pairs of
group and topic. What the kernel does not know the loader applies record by record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klog_broker.coordinator.group.offsets import OffsetBook, OffsetPlace, TopicRows
from klog_broker.coordinator.group.shard_state import GroupShardState
from klog_broker.coordinator.kernels import loaded_kernel
from klog_broker.coordinator.loading import LOAD_READ_BYTES, CheckedBytes, Run
from klog_broker.runtime.slices import Steps
from pyspark_klog.ids import Offset
from pyspark_klog.records import layout as at

COMMIT_KERNEL = "klog_broker.coordinator.group.commit_kernel"

MOST_ROWS = 32_768
"""Of one region. Batches behind them are applied record by record, which needs no memory."""

WORTHWHILE_BYTES = LOAD_READ_BYTES // 2
"""A region of less is the last of its log, or the only one: its kernel is not loaded for that."""

# What a step costs (runtime/slices.py): so many parts make an element, a row is one of them. A pair
# has to be found, and its names to be decoded.
_PARTS_AN_ELEMENT = 40
_PARTS_A_PAIR = 20
_PARTS_A_STEP = 4_000
# Tombstones are applied one by one, with the rows beside them: an element is one of these.
_LONE_ROWS_A_STEP = 100
# So many pairs have a place that is found by their bytes alone.
_MOST_TARGETS = 50_000


class _Rows(NamedTuple):
    """All runs of a region. Lists, because the loop takes single numbers out of them."""

    data: bytes
    pairs: list[list[int]]
    partitions: list[int]
    packed: list[bytes]
    is_tombstone: list[bool] | None
    """None: there is none."""


class CommitLoading:
    """The BulkLoading of one shard of the group coordinator. ``load_kernel`` is called in a helper
    thread, for the first region that is worth it."""

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
        self._targets: dict[bytes, tuple[OffsetBook, TopicRows]] = {}

    # --- beside the loop -------------------------------------------------------------------------
    def read(self, checked: CheckedBytes, from_offset: Offset) -> Mapping[int, Run]:
        """The runs among a region's batches, by their position."""
        if checked.table is None or not len(checked.table):
            return {}
        if self._load_kernel is not None and len(checked.data) >= self._least_bytes:
            self._kernel, self._load_kernel = self._load_kernel(), None
        if self._kernel is None:
            return {}
        return _Reading(self._kernel, checked, from_offset).runs()

    # --- in the loop -----------------------------------------------------------------------------
    def apply(self, run: Run) -> Steps:
        """Keep what a run has."""
        rows, targets, spent = run.rows, self._targets, 0
        data, partitions, packed = rows.data, rows.partitions, rows.packed
        for pair in rows.pairs[run.first_pair : run.pairs_end]:
            group_at, group_end, topic_at, topic_end, first, end, tombstones = pair
            spent += _PARTS_A_PAIR + end - first
            if tombstones:
                group_id, topic = _names(data, group_at, group_end, topic_at, topic_end)
                yield from self._apply_each(rows, group_id, topic, first, end)
                continue
            # With the lengths that lie before both.
            name = data[group_at - 2 : topic_end]
            target = targets.get(name)
            if target is None or not target[1]:
                if len(targets) >= _MOST_TARGETS:
                    targets.clear()
                names = _names(data, group_at, group_end, topic_at, topic_end)
                target = targets[name] = self._state.rows_for(*names)
            book, kept = target
            if end - first == 1:
                book.put_row(kept, partitions[first], packed[first])
            else:
                for part in range(first, end, _PARTS_A_STEP):
                    part_end = min(part + _PARTS_A_STEP, end)
                    book.put_rows(kept, partitions[part:part_end], packed[part:part_end])
                    if part_end < end:
                        yield _PARTS_A_STEP // _PARTS_AN_ELEMENT
                        spent -= _PARTS_A_STEP
            if spent >= _PARTS_A_STEP:
                yield spent // _PARTS_AN_ELEMENT
                spent = 0
        yield spent // _PARTS_AN_ELEMENT + 1

    def _apply_each(self, rows: _Rows, group_id: str, topic: str, first: int, end: int) -> Steps:
        """One row after the other, because there are tombstones among them."""
        state, is_tombstone = self._state, rows.is_tombstone
        assert is_tombstone is not None
        for row in range(first, end):
            partition = rows.partitions[row]
            if is_tombstone[row]:
                state.forget_offset(OffsetPlace(group_id, topic, partition))
            else:
                book, kept = state.rows_for(group_id, topic)
                book.put_row(kept, partition, rows.packed[row])
            if (row - first) % _LONE_ROWS_A_STEP == _LONE_ROWS_A_STEP - 1:
                yield _LONE_ROWS_A_STEP
        yield (end - first) % _LONE_ROWS_A_STEP


def _names(
    data: bytes, group_at: int, group_end: int, topic_at: int, topic_end: int
) -> tuple[str, str]:
    """Group and topic; one string of the topic is for all groups that have offsets in it."""
    group_id = str(data[group_at:group_end], "utf-8")
    return group_id, sys.intern(str(data[topic_at:topic_end], "utf-8"))


class _Reading:
    """One region's reading: the arrays that the kernel fills."""

    def __init__(self, kernel: Any, checked: CheckedBytes, from_offset: Offset) -> None:
        import numpy as np

        from pyspark_klog.records.kernels import scan

        self._np, self._scan, self._kernel = np, scan, kernel
        table: Any = checked.table
        self._table = table
        self._data, self._sections = self._sections_of(checked)
        # The count of a message of an older format may be -1.
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

    def runs(self) -> dict[int, Run]:
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
                # The batch that ended the run is the loader's.
                next_offset = int(table[rows_end, scan.LAST_OFFSET]) + 1
                if state[kernel.STATE_FROM_OFFSET] < next_offset <= at.INT64_MAX:
                    state[kernel.STATE_FROM_OFFSET] = next_offset
                state[kernel.STATE_ROW] = rows_end + 1
        rows = self._rows()
        runs = {}
        for row, rows_end, first_pair, pairs_end in bounds:
            last = table[rows_end - 1]
            runs[int(table[row, scan.POSITION])] = Run(
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
        data = self._data
        texts = self._texts.reshape(-1, kernel.TEXT_COLUMNS)[:rows]
        # A void, which is told as bytes, and keeps those that are 0.
        fixed = self._packed.view(f"V{kernel.PACKED_BYTES}")[:rows].tolist()
        starts, ends = texts[:, kernel.TEXT_AT], texts[:, kernel.TEXT_END]
        with_text = np.flatnonzero(ends > starts)
        for row, start, end in zip(
            with_text.tolist(), starts[with_text].tolist(), ends[with_text].tolist(), strict=True
        ):
            fixed[row] += data[start:end]
        is_tombstone = starts < 0
        return _Rows(
            data,
            self._pairs.reshape(-1, kernel.PAIR_COLUMNS)[:pairs, : kernel.PAIR_PUBLIC].tolist(),
            self._partitions[:rows].tolist(),
            fixed,
            is_tombstone.tolist() if is_tombstone.any() else None,
        )

    def _sections_of(self, checked: CheckedBytes) -> tuple[bytes, Any]:
        """The region's bytes with the inflated records behind them, and where each batch's records
        lie."""
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
