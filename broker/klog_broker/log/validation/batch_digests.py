"""Digests: what recovery needs to know of batches in order, summed up while they are scanned.

Batches come as rows from the plain checks, or as a whole table of numbers from the compiled checks:
then numpy does in bulk what would cost microseconds a batch in Python. Both give the same digest.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.producers.producer_steps import ProducerData, ProducerStep, step_of
from pyspark_klog.records.control import (
    ControlType,
    EndTransactionMarker,
    end_transaction_batch,
)
from pyspark_klog.records.layout import (
    CONTROL_BIT,
    INT64_MAX,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    Buffer,
)

# With more producers than this in one table, all their batches are taken, not the last of each.
_FEW_PRODUCERS = 64
# A producer's state depends on no more than its last batches.
_LAST_BATCHES = 5

_POSITION_COLUMN = BatchRow._fields.index("position")
_SIZE_COLUMN = BatchRow._fields.index("size_bytes")
_COMMIT = end_transaction_batch(
    EndTransactionMarker(ControlType.COMMIT, 0), producer_id=0, producer_epoch=0, timestamp_ms=0
)[RECORDS_AT:]
_EPOCH_IN_RECORD = slice(-5, -1)  # before the number of headers


class IndexRow(NamedTuple):
    """An entry that is due for the offset index, with the time index's entry at that batch."""

    last_offset: int
    position: int
    max_timestamp_ms: int
    max_timestamp_offset: int


class Digest:
    """The end of the scanned batches, the index entries they need, their epochs and producers."""

    def __init__(
        self,
        *,
        position: int,
        end_offset: int,
        end_limit: int = INT64_MAX,
        index_interval_bytes: int = INT64_MAX,  # no entries
        last_indexed_position: int = 0,
        max_timestamp_ms: int = -1,
        max_timestamp_offset: int = -1,
        latest_epoch: int = -1,
        follows_producers: bool = False,
        commits_done_before: int = 0,
    ) -> None:
        self.end_position = position
        self.end_offset = end_offset
        self.end_limit = end_limit
        self.index_interval_bytes = index_interval_bytes
        self.last_indexed_position = last_indexed_position
        self.max_timestamp_ms = max_timestamp_ms
        self.max_timestamp_offset = max_timestamp_offset
        self.latest_epoch = latest_epoch
        # A batch came whose offsets do not follow the last one's; it and all after it do not count.
        self.is_cut = False
        self.epochs: list[tuple[int, int]] = []
        self._index_rows: list[IndexRow] = []
        self.has_markers = False
        """Whether a control batch of a producer came."""
        self._follows_producers = follows_producers
        # Of a transaction whose commit lies before this offset nothing is left to be known.
        self._commits_done_before = commits_done_before
        self._producer_steps: list[ProducerStep] = []

    def take_index_rows(self) -> list[IndexRow]:
        """The index entries that became due since the last call."""
        rows, self._index_rows = self._index_rows, []
        return rows

    def take_producer_steps(self) -> list[ProducerStep]:
        """What producers did since the last call, in order: all that their states depend on."""
        steps, self._producer_steps = self._producer_steps, []
        return steps

    # --- batch by batch --------------------------------------------------------------------------
    def add_rows(self, rows: Iterable[BatchRow], shift: int, buffer: Buffer) -> None:
        """Add batches of the buffer in order; their positions plus ``shift`` are positions in the
        file."""
        for row in rows:
            if row.base_offset < self.end_offset or row.last_offset >= self.end_limit:
                self.is_cut = True
                return
            position = row.position + shift
            if row.max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = row.max_timestamp_ms
                self.max_timestamp_offset = row.last_offset
            if position - self.last_indexed_position > self.index_interval_bytes:
                self._add_index_row(row.last_offset, position)
            if row.leader_epoch > self.latest_epoch:
                self._add_epoch(row.leader_epoch, row.base_offset)
            if row.producer_id >= 0:
                self._add_producer_row(row, buffer)
            self.end_offset = row.last_offset + 1
            self.end_position = position + row.size_bytes

    def _add_index_row(self, last_offset: int, position: int) -> None:
        row = IndexRow(last_offset, position, self.max_timestamp_ms, self.max_timestamp_offset)
        self._index_rows.append(row)
        self.last_indexed_position = position

    def _add_epoch(self, epoch: int, start_offset: int) -> None:
        self.latest_epoch = epoch
        self.epochs.append((epoch, start_offset))

    def _add_producer_row(self, row: BatchRow, buffer: Buffer) -> None:
        if row.attributes & CONTROL_BIT:
            self.has_markers = True
        if self._follows_producers:
            self._add_step(row, buffer)

    def _add_step(self, row: BatchRow, buffer: Buffer) -> None:
        step = step_of(row, buffer)
        if isinstance(step, ProducerData) and not row.record_count:
            # Compaction emptied it: its transaction has ended, and the marker may be gone.
            step = step._replace(is_transactional=False)
        if step is not None:
            self._producer_steps.append(step)

    # --- in bulk ---------------------------------------------------------------------------------
    def add_table(self, table: Any, shift: int, buffer: Buffer) -> None:
        """As :meth:`add_rows`, for an int64 array of shape (batches, 13) with BatchRow's fields."""
        import numpy as np

        columns = {name: table[:, number] for number, name in enumerate(BatchRow._fields)}
        first, last = columns["base_offset"], columns["last_offset"]
        ends = np.concatenate(([self.end_offset], last[:-1] + 1))
        misfits = np.flatnonzero((first < ends) | (last >= self.end_limit))
        if misfits.size:
            self.is_cut = True
            table = table[: misfits[0]]
            columns = {name: column[: misfits[0]] for name, column in columns.items()}
            last = columns["last_offset"]
        if not len(table):
            return
        positions = columns["position"] + shift
        self._add_index_rows(np, positions, last, columns["max_timestamp_ms"])
        epochs = columns["leader_epoch"]
        for row in _risers(np, epochs, self.latest_epoch):
            self._add_epoch(int(epochs[row]), int(columns["base_offset"][row]))
        self._add_producer_rows(np, table, columns, buffer)
        self.end_offset = int(last[-1]) + 1
        self.end_position = int(positions[-1] + columns["size_bytes"][-1])

    def _add_producer_rows(
        self, np: Any, table: Any, columns: dict[str, Any], buffer: Buffer
    ) -> None:
        producer_ids, attributes = columns["producer_id"], columns["attributes"]
        rows = np.flatnonzero(producer_ids >= 0)
        if not rows.size:
            return
        self.has_markers |= bool((attributes[rows] & CONTROL_BIT).any())
        if self._follows_producers:
            skips = columns["base_offset"][-1] < self._commits_done_before and _only_commits(
                np, table[rows][attributes[rows] & CONTROL_BIT != 0], buffer
            )
            # Without the transactional bit a batch begins no transaction: see _add_step.
            is_emptied = columns["record_count"][rows] == 0
            needed = _needed_producer_rows(
                np,
                rows,
                producer_ids[rows],
                np.where(is_emptied, attributes[rows] & CONTROL_BIT, attributes[rows]),
                skips_committed=bool(skips),
            )
            for row in table[needed].tolist():
                self._add_step(BatchRow(*row), buffer)

    def _add_index_rows(self, np: Any, positions: Any, last_offsets: Any, timestamps: Any) -> None:
        risers = _risers(np, timestamps, self.max_timestamp_ms)
        rows = self._due_rows(np, positions)
        if rows:
            # Up to and with each of these batches: the largest timestamp, and where it is.
            known = np.searchsorted(risers, rows, side="right")
            max_timestamps = np.concatenate(([self.max_timestamp_ms], timestamps[risers]))[known]
            max_offsets = np.concatenate(([self.max_timestamp_offset], last_offsets[risers]))[known]
            due = (last_offsets[rows], positions[rows], max_timestamps, max_offsets)
            columns = [column.tolist() for column in due]
            self._index_rows.extend(map(IndexRow._make, zip(*columns, strict=True)))
            self.last_indexed_position = columns[1][-1]
        if len(risers):
            self.max_timestamp_ms = int(timestamps[risers[-1]])
            self.max_timestamp_offset = int(last_offsets[risers[-1]])

    def _due_rows(self, np: Any, positions: Any) -> list[int]:
        """The rows with which an entry is due: more than an interval behind the one before."""
        first = self.last_indexed_position + self.index_interval_bytes
        if first >= int(positions[-1]):
            return []
        # After an entry at a row, the row with the next one. No sum overflows, as first did not.
        following = np.searchsorted(
            positions, positions + self.index_interval_bytes, side="right"
        ).tolist()
        row = int(np.searchsorted(positions, first, side="right"))
        rows = []
        while row < len(following):
            rows.append(row)
            row = following[row]
        return rows


def _risers(np: Any, values: Any, before: int) -> Any:
    """The indexes of values that are larger than all values before them, and than ``before``."""
    largest = np.maximum.accumulate(np.concatenate(([before], values)))
    return np.flatnonzero(values > largest[:-1])


def _needed_producer_rows(
    np: Any, rows: Any, producer_ids: Any, attributes: Any, *, skips_committed: bool
) -> Any:
    """Of the rows with these producers and attributes those that states depend on: markers, what
    begins a transaction, and each producer's last batches. With ``skips_committed`` of each
    producer's markers only the last one, and of its transactions only the one behind it."""
    producers = np.unique(producer_ids)
    if producers.size > _FEW_PRODUCERS:
        return rows
    is_control = attributes & CONTROL_BIT != 0
    is_transactional = attributes & TRANSACTIONAL_BIT != 0
    needed = [] if skips_committed else [np.flatnonzero(is_control)]
    for each in producers:
        of_producer = producer_ids == each
        needed.append(np.flatnonzero(of_producer & ~is_control)[-_LAST_BATCHES:])
        transactional = np.flatnonzero(of_producer & is_transactional)
        if skips_committed:
            last_marker = np.flatnonzero(is_control[transactional])[-1:]
            begin = last_marker[0] if last_marker.size else 0
            # The marker and what comes behind it, or what comes first.
            needed.append(transactional[begin : begin + 2])
        elif transactional.size:
            # What comes first, or behind a marker.
            follows_marker = np.concatenate(([True], is_control[transactional[:-1]]))
            needed.append(transactional[follows_marker])
    return rows[np.unique(np.concatenate(needed))]


def _only_commits(np: Any, table: Any, buffer: Buffer) -> bool:
    """Whether all of these control batches are commits, as brokers write them."""
    record = np.frombuffer(_COMMIT, np.uint8)
    if not (table[:, _SIZE_COLUMN] == RECORDS_AT + record.size).all():
        return False
    data = np.frombuffer(buffer, np.uint8)
    starts = table[:, _POSITION_COLUMN] + RECORDS_AT
    differs = data[starts[:, None] + np.arange(record.size)] != record
    # But for the coordinator's epoch.
    differs[:, _EPOCH_IN_RECORD] = False
    return not differs.any()
