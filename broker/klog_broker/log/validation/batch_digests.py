"""Digest: a summary of scanned batches, for recovery and for appends of followers.

PlainChecks (in Python) adds batches one by one, each as a BatchRow, the fields of its header.
KernelChecks (compiled by numba) adds all but the first batches of a buffer as a table, because
numpy then does in bulk what takes microseconds for each batch in Python. Both ways give equal
digests, except that a table may leave out the producer steps of batches that no producer state
depends on.
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

# A producer step is what a batch changes in its producer's state. If the batches of one call of
# `add_table` have more producers than this, the digest has a step for every batch that changes a
# producer state: to select only the batches that producer states need takes a pass over all these
# batches for each producer.
_FEW_PRODUCERS = 64
# The state of a producer holds at most this many batches (producer_state.WINDOW_BATCHES).
_LAST_BATCHES = 5

_POSITION_COLUMN = BatchRow._fields.index("position")
_SIZE_COLUMN = BatchRow._fields.index("size_bytes")
_COMMIT = end_transaction_batch(
    EndTransactionMarker(ControlType.COMMIT, 0), producer_id=0, producer_epoch=0, timestamp_ms=0
)[RECORDS_AT:]
_EPOCH_IN_RECORD = slice(-5, -1)  # in a marker's record: the bytes of its coordinator epoch


class IndexRow(NamedTuple):
    """An entry for the offset index, and the entry for the time index at the same batch."""

    last_offset: int
    position: int
    max_timestamp_ms: int
    max_timestamp_offset: int


class Digest:
    """A summary of batches: their end, index entries, largest timestamp and epochs, and what the
    batches change in the states of their producers (the producer steps).

    The summary begins with the values (end, largest timestamp, latest epoch ...) that the log has
    before the first batch.
    """

    def __init__(
        self,
        *,
        position: int,
        end_offset: int,
        end_limit: int = INT64_MAX,
        index_interval_bytes: int = INT64_MAX,  # by default no batch gets an index entry
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
        # True after a batch that begins below end_offset or reaches end_limit. The digest contains
        # neither this batch nor the batches after it.
        self.is_cut = False
        self.epochs: list[tuple[int, int]] = []
        self._index_rows: list[IndexRow] = []
        self.has_markers = False
        """Whether one of the batches is a control batch with a producer id."""
        self._follows_producers = follows_producers
        # The high watermark. Readers need not know when a transaction began that was committed
        # below this offset, so the digest may leave out what the transaction changed in its
        # producer's state.
        self._commits_done_before = commits_done_before
        self._producer_steps: list[ProducerStep] = []

    def drain_index_rows(self) -> list[IndexRow]:
        """Return the index entries of batches added since the last call, and remove them."""
        rows, self._index_rows = self._index_rows, []
        return rows

    def drain_producer_steps(self) -> list[ProducerStep]:
        """Return the producer steps (what each batch changes in its producer's state) of the
        batches added since the last call, in order, and remove them.

        A batch that no producer state depends on may have no step, for example because five later
        batches of its producer follow.
        """
        steps, self._producer_steps = self._producer_steps, []
        return steps

    # --- adding batches one by one ---------------------------------------------------------------
    def add_rows(self, rows: Iterable[BatchRow], shift: int, buffer: Buffer) -> None:
        """Add the batches whose headers are ``rows``, in order. A row's position counts from the
        start of ``buffer``, which has the bytes of the batches; ``shift`` is the position of the
        buffer in the file."""
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
            # Compaction has removed all records of this batch, so its transaction has ended. The
            # batch must not open a transaction in the producer state: the marker that would end it
            # may be removed, too.
            step = step._replace(is_transactional=False)
        if step is not None:
            self._producer_steps.append(step)

    # --- adding a table of batches ---------------------------------------------------------------
    def add_table(self, table: Any, shift: int, buffer: Buffer) -> None:
        """Add batches of ``buffer`` in order, with the same result as :meth:`add_rows`, but without
        the producer steps of batches that no producer state depends on.

        ``table`` is an int64 array of shape (batches, 13), with BatchRow's fields as columns.
        """
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
            # Clear the transactional bit of batches that compaction has emptied: they must not open
            # a transaction (_add_step).
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
            # For each batch that gets an index entry: the largest timestamp up to and including
            # this batch, and the last offset of the first batch with that timestamp.
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
        """Return the numbers of the table's rows whose batches get an index entry: each begins more
        than ``index_interval_bytes`` after the previous batch with an entry."""
        first = self.last_indexed_position + self.index_interval_bytes
        if first >= int(positions[-1]):
            return []
        # following[i] is the row of the next entry after an entry at row i. The sums do not
        # overflow: with an interval near INT64_MAX, the function has returned above.
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
    """Return the indexes of the values that are larger than ``before`` and all earlier values."""
    largest = np.maximum.accumulate(np.concatenate(([before], values)))
    return np.flatnonzero(values > largest[:-1])


def _needed_producer_rows(
    np: Any, rows: Any, producer_ids: Any, attributes: Any, *, skips_committed: bool
) -> Any:
    """Return those of ``rows`` on which producer states depend: markers, each batch that begins a
    transaction, and the last five batches of each producer. If there are many producers, returns
    all ``rows``.

    ``producer_ids`` and ``attributes`` are those of the rows. With ``skips_committed``, earlier
    transactions of a producer are left out: of its markers and of the batches that begin its
    transactions, only the last marker and the batch after it are included.
    """
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
            # Needed are the producer's last marker and the transactional batch after it; without a
            # marker, the producer's first two transactional batches.
            needed.append(transactional[begin : begin + 2])
        elif transactional.size:
            # Needed are the batches that can begin a transaction: the producer's first
            # transactional batch, and each transactional batch directly after a marker.
            follows_marker = np.concatenate(([True], is_control[transactional[:-1]]))
            needed.append(transactional[follows_marker])
    return rows[np.unique(np.concatenate(needed))]


def _only_commits(np: Any, table: Any, buffer: Buffer) -> bool:
    """Whether all control batches of the table are commit markers in the form that brokers write.

    Compares the bytes of each record with those of a commit marker.
    """
    record = np.frombuffer(_COMMIT, np.uint8)
    if not (table[:, _SIZE_COLUMN] == RECORDS_AT + record.size).all():
        return False
    data = np.frombuffer(buffer, np.uint8)
    starts = table[:, _POSITION_COLUMN] + RECORDS_AT
    differs = data[starts[:, None] + np.arange(record.size)] != record
    # Commit markers may differ in the coordinator epoch.
    differs[:, _EPOCH_IN_RECORD] = False
    return not differs.any()
