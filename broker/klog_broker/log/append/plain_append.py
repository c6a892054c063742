"""Appends uncompressed batches that this broker made: coordinators' records, transaction markers.

Coordinators append many small batches, and a marker to each partition in which a transaction ends,
so each append must be cheap. The batches are not validated, unless a topic setting (such as
compression.type) may require a change of the batch: plain_batch, finish_plain_batch and
end_transaction_batch make them well formed and uncompressed, and the coordinator passes the header
fields that an append needs.
"""

from klog_broker.log.append.leader_append import Appender
from klog_broker.log.append.log_writer import LogWriter
from klog_broker.log.errors import RecordBatchTooLarge
from klog_broker.log.producers.producer_state import ProducerMarker
from klog_broker.log.segment.batch_positions import AppendedBatch
from klog_broker.log.state.log_state import LogState
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.log_validator import check_size, is_stored_unchanged
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.control import EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.layout import BASE_OFFSET_AT, INT32, INT64, LEADER_EPOCH_AT


class PlainAppender:
    """Appends batches that this broker made to one log.

    If compression.type or LogAppendTime may require a change of a batch, ``appender`` validates and
    appends the batch instead. For a leader epoch that is not the log's newest, ``appender`` raises
    the error.
    """

    def __init__(self, state: LogState, writer: LogWriter, appender: Appender) -> None:
        self._state = state
        self._writer = writer
        self._appender = appender

    def append_plain(
        self,
        batch: bytearray,
        record_count: int,
        timestamp_ms: int,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> None:
        if not self._stores_as_made(batch, leader_epoch):
            self._appender.append_as_leader(
                batch, leader_epoch=leader_epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
            )
            return
        self._state.check_online()
        self._append(batch, record_count, timestamp_ms, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
        leader_epoch: LeaderEpoch,
        now_ms: int,
    ) -> Offset:
        made = end_transaction_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        batch = bytearray(made)
        state = self._state
        if self._stores_as_made(batch, leader_epoch):
            state.check_online()
            step = ProducerMarker(producer_id, producer_epoch, state.log_end_offset, now_ms, marker)
            state.producers.check_marker(step, transaction_version)
            self._append(batch, 1, now_ms, leader_epoch, now_ms, step)
        else:
            self._appender.append_marker(
                batch, marker, transaction_version, leader_epoch=leader_epoch, now_ms=now_ms
            )
        return state.log_end_offset

    def _stores_as_made(self, batch: bytearray, leader_epoch: LeaderEpoch) -> bool:
        state = self._state
        is_current = leader_epoch == state.newest_epoch == state.epochs.latest
        return is_current and is_stored_unchanged(batch, state.config)

    def _append(
        self,
        batch: bytearray,
        record_count: int,
        timestamp_ms: int,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        marker: ProducerMarker | None = None,
    ) -> None:
        state, config = self._state, self._state.config
        size_bytes = len(batch)
        check_size(size_bytes, config)
        if size_bytes > config.segment_bytes:
            raise RecordBatchTooLarge(
                f"a batch of {size_bytes} bytes is too large: segment.bytes is "
                f"{config.segment_bytes}"
            )
        first_offset = state.log_end_offset
        end_offset = Offset(first_offset + record_count)
        written = AppendedBatch(size_bytes, first_offset, end_offset, timestamp_ms)
        # The CRC does not cover these two fields, so it stays valid.
        INT64.pack_into(batch, BASE_OFFSET_AT, first_offset)
        INT32.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)
        self._writer.append_batch(batch, written, marker, now_ms)
