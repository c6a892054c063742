"""Which batches of a Fetch response are hidden from a reader of committed records only."""

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
    """As a Fetch response lists them: this producer's batches from here to its marker are void."""

    producer_id: int
    first_offset: int


class AbortedFilter:
    """Kafka's rule for read_committed, over one response.

    From the first offset of a listed transaction its producer's batches are void, until the marker
    of its end. The list has no end offsets, and a producer can be on it more than once.
    """

    def __init__(self, buffer: Buffer, aborted: Sequence[tuple[int, int]]) -> None:
        self._buffer = buffer
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._producers: set[int] = set()

    def committed(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """For each batch, in order, whether it may be shown."""
        shown = np.ones(len(rows), np.bool_)
        columns = [scan.PRODUCER_ID, scan.LAST_OFFSET, scan.ATTRIBUTES, scan.POSITION]
        for row, fields in enumerate(rows[:, columns].tolist()):
            shown[row] = self.shows(*fields)
        return shown

    def shows(self, producer_id: int, last_offset: int, attributes: int, position: int) -> bool:
        """Whether the next batch, which begins at that byte, may be shown. None is left out, not
        even one of a producer without transactions or of markers."""
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
