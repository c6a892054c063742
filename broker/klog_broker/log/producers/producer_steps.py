"""Producer steps: what a stored batch or a transaction marker changes in the state of its producer.
Steps are applied to the producer states in the order of the log."""

from typing import NamedTuple

from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.producers.producer_state import (
    MAX_SEQUENCE,
    ProducerBatch,
    ProducerHead,
    ProducerMarker,
    ProducerStates,
)
from pyspark_klog.ids import Offset
from pyspark_klog.records.control import EndTransactionMarker, end_transaction_at
from pyspark_klog.records.layout import (
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Buffer,
)


class ProducerData(NamedTuple):
    """The facts of a stored batch of records that change its producer's state: the producer fields
    of the batch's header, and the batch's sequences, offsets and timestamps."""

    head: ProducerHead
    batch: ProducerBatch
    is_transactional: bool

    @property
    def offset(self) -> int:
        """The offset of the batch's first record."""
        return self.batch.first_offset

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record."""
        return self.batch.last_offset


ProducerStep = ProducerData | ProducerMarker


def data_step(row: BatchRow) -> ProducerData | None:
    """Return what a stored batch of records changes in its producer's state. Returns None for a
    control batch, for which :func:`marker_step` is used, and for a batch without producer id or
    sequence, which changes no producer state."""
    if row.producer_id < 0 or row.base_sequence < 0 or row.attributes & CONTROL_BIT:
        return None
    last_sequence = (row.base_sequence + row.last_offset - row.base_offset) & MAX_SEQUENCE
    head = ProducerHead(row.producer_id, row.producer_epoch, row.base_sequence, last_sequence)
    append_time_ms = row.max_timestamp_ms if row.attributes & TIMESTAMP_TYPE_BIT else -1
    batch = ProducerBatch(
        row.base_sequence,
        last_sequence,
        Offset(row.base_offset),
        Offset(row.last_offset),
        row.max_timestamp_ms,
        append_time_ms,
    )
    return ProducerData(head, batch, bool(row.attributes & TRANSACTIONAL_BIT))


def marker_step(row: BatchRow, marker: EndTransactionMarker) -> ProducerMarker:
    """Return what a transaction marker changes in its producer's state. ``row`` has the header of
    the control batch that contains the marker."""
    return ProducerMarker(
        row.producer_id, row.producer_epoch, row.base_offset, row.max_timestamp_ms, marker
    )


def step_of(row: BatchRow, buffer: Buffer) -> ProducerStep | None:
    """Return what the batch at ``row.position`` in the buffer changes in its producer's state; None
    if the batch changes no producer state."""
    if row.attributes & CONTROL_BIT and row.producer_id >= 0:
        marker = end_transaction_at(buffer, row.position, row.size_bytes)
        return None if marker is None else marker_step(row, marker)
    return data_step(row)


def apply_step(states: ProducerStates, step: ProducerStep, now_ms: int) -> None:
    """Update the state of a producer by ``step``: the change that a batch of this producer makes
    once the batch is in the log."""
    if isinstance(step, ProducerMarker):
        states.apply_marker(step, now_ms)
    else:
        head, batch, is_transactional = step
        states.apply_batch(
            head.producer_id,
            head.producer_epoch,
            batch,
            now_ms,
            is_transactional=is_transactional,
        )
