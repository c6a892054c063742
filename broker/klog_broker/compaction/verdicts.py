"""Decides which batches the log cleaner keeps or removes as a whole, before it reads their records
(Kafka's Cleaner.cleanInto)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from klog_broker.compaction.cleaned_transactions import CleanedTransactions
from klog_broker.compaction.filtering import (
    DROP_RECORDS,
    KEEP_RECORDS,
    RETAIN_EMPTY,
    SET_HORIZON,
)
from klog_broker.log.maintenance.cleaning import LastProducerBatch
from pyspark_klog.records.control import ControlType, end_transaction_at
from pyspark_klog.records.kernels import scan
from pyspark_klog.records.layout import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    Buffer,
)

_TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT
_UNREADABLE = ControlType.UNKNOWN


class Verdicts:
    """Decides, in one pass over a log in offset order, which batches are kept or removed whole.

    The methods take a chunk of the log and its table, which has a row of ``scan.TABLE_COLUMNS``
    numbers (header fields) for each batch of the chunk.
    """

    def __init__(
        self,
        transactions: CleanedTransactions,
        last_of_producers: Mapping[int, LastProducerBatch],
        now_ms: int,
    ) -> None:
        self._transactions = transactions
        self._last = last_of_producers
        self._now_ms = now_ms
        lasts = last_of_producers.values()
        offsets = [each.data_offset for each in lasts if each.data_offset is not None]
        self._last_offsets = np.array(sorted(offsets), np.int64)

    def keyless_rows(self, chunk: Buffer, table: Any) -> Any:
        """Flag the batches whose keys must not enter the map of keys to offsets: transaction
        markers, and batches of aborted transactions."""
        void = np.zeros(len(table), np.uint8)
        for row in self._of_transactions(table):
            void[row] = self._is_void(chunk, table[row].tolist())
        return void

    def verdicts(self, chunk: Buffer, table: Any) -> Any:
        """Return the verdict on each batch, as bits for ``ChunkFilter``: keep or drop all of its
        records, keep its header even without records, set its delete horizon."""
        verdicts = np.zeros(len(table), np.uint8)
        for row in self._of_transactions(table):
            verdicts[row] = self._verdict(chunk, table[row].tolist())
        producer_ids = table[:, scan.PRODUCER_ID]
        if len(self._last_offsets):
            is_last = (producer_ids >= 0) & np.isin(table[:, scan.LAST_OFFSET], self._last_offsets)
            for row in np.flatnonzero(is_last).tolist():
                last = self._last.get(int(producer_ids[row]))
                if last is not None and last.data_offset == int(table[row, scan.LAST_OFFSET]):
                    verdicts[row] |= RETAIN_EMPTY
        return verdicts

    def _of_transactions(self, table: Any) -> list[int]:
        is_one = (table[:, scan.ATTRIBUTES] & _TRANSACTION_BITS != 0) & (
            table[:, scan.MAGIC] == MAGIC_V2
        )
        rows: list[int] = np.flatnonzero(is_one).tolist()
        return rows

    def _is_void(self, chunk: Buffer, row: list[int]) -> bool:
        if row[scan.ATTRIBUTES] & CONTROL_BIT:
            self._is_last_trace(chunk, row)
            return True
        return self._transactions.is_void(row[scan.PRODUCER_ID], row[scan.LAST_OFFSET])

    def _is_last_trace(self, chunk: Buffer, row: list[int]) -> bool:
        control_type: ControlType | None = None
        if row[scan.RECORD_COUNT]:
            marker = end_transaction_at(chunk, row[scan.POSITION], row[scan.SIZE_BYTES])
            control_type = _UNREADABLE if marker is None else marker.control_type
        return self._transactions.is_last_trace(
            row[scan.PRODUCER_ID], row[scan.LAST_OFFSET], control_type
        )

    def _verdict(self, chunk: Buffer, row: list[int]) -> int:
        attributes = row[scan.ATTRIBUTES]
        if not attributes & CONTROL_BIT:
            if self._transactions.is_void(row[scan.PRODUCER_ID], row[scan.LAST_OFFSET]):
                return int(DROP_RECORDS)
            return 0
        verdict = int(KEEP_RECORDS)
        if self._is_last_trace(chunk, row):
            has_horizon = bool(attributes & DELETE_HORIZON_BIT)
            is_over = has_horizon and self._now_ms >= row[scan.BASE_TIMESTAMP_MS]
            verdict = int(DROP_RECORDS if is_over else KEEP_RECORDS | SET_HORIZON)
        last = self._last.get(row[scan.PRODUCER_ID])
        if (
            last is not None
            and last.data_offset is None
            and last.producer_epoch == row[scan.PRODUCER_EPOCH]
        ):
            verdict |= RETAIN_EMPTY
        return verdict
