"""Appends of a follower: keeps the bytes, offsets and leader epochs of the leader's batches.

A follower checks sizes, CRCs and offsets of the batches, and takes offsets, leader epochs and
producer fields from their headers. The records are not validated, because the leader has done so.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from klog_broker.log.append.log_writer import LogWriter
from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.errors import OffsetOutOfRange, StaleLeaderEpoch
from klog_broker.log.producers.producer_state import ProducerMarker, ProducerStates
from klog_broker.log.producers.producer_steps import ProducerStep
from klog_broker.log.segment.batch_positions import AppendedBatch
from klog_broker.log.segment.planned_append import AppendLimits, PlannedAppend
from klog_broker.log.state.log_state import LogState
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import LOG_OVERHEAD_BYTES, MAGIC_V2, Buffer
from pyspark_klog.storage.indexes import MAX_RELATIVE_OFFSET
from pyspark_klog.storage.transaction_index import AbortedEntry


class FollowerPlan(NamedTuple):
    """The planned append of whole batches: what the append adds to the segment and its indexes, to
    the producer states and to the leader epochs."""

    planned: PlannedAppend
    steps: list[ProducerStep]  # the changes that the batches make to the state of producers
    epochs: list[tuple[int, int]]  # epochs that begin in the batches, with their start offsets
    last_offset: int


class _FollowerDigest(Digest):
    """A digest (summary of scanned batches) that also stores the header of the first batch, the
    newest leader epoch, and whether a v2 batch has an older epoch than the log or the batch before
    it."""

    first_row: BatchRow | None = None
    newest_epoch = -1
    has_falling_epochs = False

    def add_rows(self, rows: Iterable[BatchRow], shift: int, buffer: Buffer) -> None:
        """Add batches to the digest, and update ``first_row``, ``newest_epoch`` and
        ``has_falling_epochs``. A row holds the header fields of one batch."""
        for row in rows:
            self._note(row, row.leader_epoch)
            if row.magic == MAGIC_V2 and row.leader_epoch < self.latest_epoch:
                self.has_falling_epochs = True
            super().add_rows((row,), shift, buffer)

    def add_table(self, table: Any, shift: int, buffer: Buffer) -> None:
        """Add batches to the digest as :meth:`add_rows` does. Each row of the numpy array ``table``
        holds the header fields of one batch, in the order of BatchRow's fields."""
        import numpy as np

        if not len(table):
            return
        columns = {name: table[:, number] for number, name in enumerate(BatchRow._fields)}
        epochs = columns["leader_epoch"][columns["magic"] == MAGIC_V2]
        if len(epochs):
            before = np.concatenate(([self.latest_epoch], epochs[:-1]))
            self.has_falling_epochs |= bool((epochs < before).any())
        self._note(BatchRow(*table[0].tolist()), int(columns["leader_epoch"].max()))
        super().add_table(table, shift, buffer)

    def _note(self, row: BatchRow, newest_epoch: int) -> None:
        if self.first_row is None:
            self.first_row = row
        self.newest_epoch = max(self.newest_epoch, newest_epoch)


def plan_follower_append(
    data: memoryview,
    limits: AppendLimits,
    *,
    log_end_offset: int,
    latest_epoch: int,
    leader_epoch: int,
    checks: RecordChecks,
    check_crc: bool = True,
) -> FollowerPlan | None:
    """Check the whole batches at the start of ``data``, and plan their append to the active
    segment, whose state is ``limits``. The caller checks whether the batches fit into the segment.

    Returns None if there is no whole batch. A batch that is cut off at the end of ``data`` is left
    out. Raises CorruptRecords if bytes are not a valid batch, if a batch begins before the end of
    the batch before it, or if a batch has an older leader epoch than that batch or the log. Raises
    OffsetOutOfRange if the first batch begins before the log's end, or if the last batch ends so
    far after the log's end that the offsets do not fit into one segment. Raises StaleLeaderEpoch
    for a batch whose epoch is newer than ``leader_epoch``: a later leader wrote the batch
    (KAFKA-18723).
    """
    digest = _FollowerDigest(
        position=limits.size_bytes,
        end_offset=log_end_offset,
        index_interval_bytes=limits.index_interval_bytes,
        last_indexed_position=limits.size_bytes - limits.bytes_since_index_entry,
        max_timestamp_ms=limits.max_timestamp_ms,
        max_timestamp_offset=limits.max_timestamp_offset,
        latest_epoch=latest_epoch,
        follows_producers=True,
    )
    checks.scan_into(digest, data, limits.size_bytes, check_crc=check_crc)
    size_bytes = digest.end_position - limits.size_bytes
    first = digest.first_row
    if digest.is_cut:
        _refuse_offsets(first, log_end_offset)
    if not _is_cut_off(data, size_bytes):
        raise CorruptRecords(
            f"the leader sent a batch with a wrong CRC or structure at offset {digest.end_offset}"
            f" (byte {size_bytes} of its records)"
        )
    if first is None:
        return None
    if digest.newest_epoch > leader_epoch:
        raise StaleLeaderEpoch(
            f"a batch of leader epoch {digest.newest_epoch} was fetched from the leader of epoch "
            f"{leader_epoch}"
        )
    if digest.has_falling_epochs:
        raise CorruptRecords(
            "the leader sent batches out of order: the leader epochs in their headers fall"
        )
    if digest.end_offset - log_end_offset > MAX_RELATIVE_OFFSET:
        raise OffsetOutOfRange(
            f"the leader sent batches up to offset {digest.end_offset}, the log ends at "
            f"{log_end_offset}: the distance is too far for one segment"
        )
    planned = _planned(digest, first, size_bytes)
    steps = digest.drain_producer_steps()
    return FollowerPlan(planned, steps, digest.epochs, digest.end_offset - 1)


def _planned(digest: _FollowerDigest, first: BatchRow, size_bytes: int) -> PlannedAppend:
    return PlannedAppend(
        first.base_offset,
        digest.end_offset,
        size_bytes,
        first.max_timestamp_ms,
        digest.end_position - digest.last_indexed_position,
        digest.max_timestamp_ms,
        digest.max_timestamp_offset,
        digest.drain_index_rows(),
        (),
    )


def aborted_in(states: ProducerStates, steps: Iterable[ProducerStep]) -> list[AbortedEntry]:
    """Return the transaction index entries for the transactions that ``steps`` abort.

    ``steps`` are the changes that batches make to the producer states once they are appended.
    ``states`` are the states before these batches, and are not changed.
    """
    if not any(isinstance(step, ProducerMarker) and step.is_abort for step in steps):
        return []
    open_since = {producer_id: first for first, producer_id in states.transactions}
    aborted = []
    for step in steps:
        if isinstance(step, ProducerMarker):
            first = open_since.pop(step.producer_id, None)
            if first is not None and step.is_abort:
                stable = min(open_since.values(), default=step.offset + 1)
                aborted.append(AbortedEntry(step.producer_id, first, step.offset, stable))
        elif step.is_transactional:
            open_since.setdefault(step.head.producer_id, step.offset)
    return aborted


def fits_segment(plan: FollowerPlan, limits: AppendLimits) -> bool:
    """Whether all batches can be appended to the segment without rolling it."""
    planned = plan.planned
    timestamp_limit_ms = limits.timestamp_limit_ms
    if not limits.size_bytes:
        first_ms = planned.first_timestamp_ms
        timestamp_limit_ms = (
            first_ms + limits.longest_ms if first_ms >= 0 else limits.untimed_limit_ms
        )
    return (
        limits.size_bytes + planned.size_bytes <= limits.segment_bytes
        and plan.last_offset <= limits.last_offset_limit
        and planned.max_timestamp_ms <= timestamp_limit_ms
        and len(planned.index_entries) < limits.index_rows
    )


def split_batches(data: memoryview, checks: RecordChecks) -> tuple[memoryview, memoryview] | None:
    """Split checked batches before the middle batch, so that a batch which needs a new segment can
    be appended alone; returns None if there is only one batch."""
    rows = checks.scan(data, 0, len(data), check_crc=False).rows
    if len(rows) < 2:
        return None
    middle = rows[len(rows) // 2].position
    return data[:middle], data[middle:]


def _refuse_offsets(first: BatchRow | None, log_end_offset: int) -> None:
    if first is not None and first.base_offset < log_end_offset:
        raise OffsetOutOfRange(
            f"the leader sent batches from offset {first.base_offset} on, but the log ends at "
            f"{log_end_offset}"
        )
    raise CorruptRecords(
        "the leader sent batches out of order: the offsets of the records in them fall"
    )


def _is_cut_off(data: memoryview, position: int) -> bool:
    """Whether the bytes from ``position`` on, if any, can be the start of an incomplete batch."""
    left = len(data) - position
    if left < LOG_OVERHEAD_BYTES:
        return True
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    return length > left - LOG_OVERHEAD_BYTES


class FollowerAppender:
    """Appends the leader's batches to one log. ``on_appended()`` is called once at the end of an
    ``append_as_follower`` that has appended batches, even if it failed after the first of them."""

    def __init__(
        self, state: LogState, writer: LogWriter, *, on_appended: Callable[[], None]
    ) -> None:
        self._state = state
        self._writer = writer
        self._on_appended = on_appended

    def append_as_follower(
        self, records: memoryview, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> None:
        self._state.check_online()
        limits = self._writer.limits_for_next(now_ms)
        plan = self._plan_append(records, limits, leader_epoch, check_crc=True)
        if plan is None:
            return
        end_before = self._state.log_end_offset
        try:
            self._append(records[: plan.planned.size_bytes], limits, leader_epoch, now_ms, plan)
        finally:
            if self._state.log_end_offset > end_before and not self._state.is_offline:
                self._on_appended()

    def _plan_append(
        self, data: memoryview, limits: AppendLimits, leader_epoch: LeaderEpoch, *, check_crc: bool
    ) -> FollowerPlan | None:
        state = self._state
        return plan_follower_append(
            data,
            limits,
            log_end_offset=state.log_end_offset,
            latest_epoch=state.epochs.latest,
            leader_epoch=leader_epoch,
            checks=state.checks(),
            check_crc=check_crc,
        )

    def _append_at_end(self, data: memoryview, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """Append whole, checked batches at the present end of the log."""
        limits = self._writer.limits_for_next(now_ms)
        plan = self._plan_append(data, limits, leader_epoch, check_crc=False)
        assert plan is not None
        self._append(data, limits, leader_epoch, now_ms, plan)

    def _append(
        self,
        data: memoryview,
        limits: AppendLimits,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        plan: FollowerPlan,
    ) -> None:
        """Append whole, checked batches. ``limits`` says what the active segment can take before it
        must be rolled; ``plan`` must have been made for ``data`` and these limits."""
        state = self._state
        parts = None if fits_segment(plan, limits) else split_batches(data, state.checks())
        if parts is not None:
            # A batch among these needs a new segment. Append the two halves one after the other,
            # and split them further, until this batch is alone.
            for part in parts:
                self._append_at_end(part, leader_epoch, now_ms)
            return
        if not fits_segment(plan, limits) and self._roll_for(data, now_ms):
            self._append_at_end(data, leader_epoch, now_ms)
            return
        aborted = aborted_in(state.producers, plan.steps)
        self._writer.write(data, len(plan.planned.index_entries) or 1, aborted)
        self._writer.commit(plan.planned, plan.steps, now_ms, plan.epochs)

    def _roll_for(self, data: memoryview, now_ms: int) -> bool:
        """Begin a new segment if the first batch needs one; returns whether a segment began."""
        row = self._state.checks().scan(data, 0, len(data), check_crc=False).rows[0]
        end_offset = Offset(row.last_offset + 1)
        first = AppendedBatch(
            row.size_bytes, Offset(row.base_offset), end_offset, row.max_timestamp_ms
        )
        return self._writer.roll_for(first, now_ms)
