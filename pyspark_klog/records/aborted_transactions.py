"""Decides which batches of a Fetch response belong to aborted transactions (read_committed)."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import ControlType, control_type_of
from pyspark_klog.records.kernels import scan
from pyspark_klog.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT, Buffer


class AbortedTransaction(NamedTuple):
    """An entry of a Fetch response's list of aborted transactions.

    The producer's transactional batches from ``first_offset`` to its abort marker are aborted.
    """

    producer_id: int
    first_offset: int


class AbortedFilter:
    """Applies Kafka's rule for read_committed to the batches of one Fetch response.

    From the first offset of a listed transaction on, the producer's transactional batches are
    aborted, until the abort marker of that transaction. The list has no end offsets, and a producer
    can occur in the list more than once.
    """

    def __init__(self, buffer: Buffer, aborted: Sequence[tuple[int, int]]) -> None:
        self._buffer = buffer
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._producers: set[int] = set()

    def committed_rows(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each row whether the batch that the row describes belongs to no aborted
        transaction; control batches count as committed.

        ``rows`` is a table that the kernel ``scan_batches`` made, with one row per batch. The first
        batch must directly follow the last batch of the previous call.
        """
        shown = np.ones(len(rows), np.bool_)
        columns = [scan.PRODUCER_ID, scan.LAST_OFFSET, scan.ATTRIBUTES, scan.POSITION]
        for row, fields in enumerate(rows[:, columns].tolist()):
            shown[row] = self.is_committed(*fields)
        return shown

    def is_committed(
        self, producer_id: int, last_offset: int, attributes: int, position: int
    ) -> bool:
        """Whether the batch that begins at byte ``position`` of the buffer is not aborted.

        The caller must pass every batch in log order, including control batches and batches of
        producers without transactions.
        """
        while self._coming and self._coming[0][1] <= last_offset:
            self._producers.add(self._coming.popleft()[0])
        if producer_id not in self._producers:
            return True
        if attributes & CONTROL_BIT:
            if self._is_abort_marker(position):
                self._producers.discard(producer_id)
            return True
        return not attributes & TRANSACTIONAL_BIT

    def _is_abort_marker(self, position: int) -> bool:
        record = next(BatchView(self._buffer, position).records(), None)
        return record is not None and control_type_of(record.key) is ControlType.ABORT
