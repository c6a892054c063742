"""The first offsets of a log's undecided transactions (KIP-98).

A transaction begins with its producer's first transactional batch and ends with a marker. A
transaction is undecided until its marker is below the high watermark.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from pyspark_klog.records.layout import INT64_MAX


class UndecidedTransactions:
    """The undecided transactions of a log, ordered by first offset (Kafka's ongoingTxns and
    unreplicatedTxns in ProducerStateManager)."""

    __slots__ = ("_open", "_unreplicated", "first_unstable_offset")

    def __init__(self, begun: Iterable[tuple[int, int]] = ()) -> None:
        # The open transactions: maps the first offset of each to its producer id, in ascending
        # order, because a new transaction starts at the log end.
        self._open: OrderedDict[int, int] = OrderedDict(sorted(begun))
        # The ended transactions whose marker is not replicated: pairs of first offset and marker's
        # offset, both in ascending order. A transaction is left out if a later marker ends another
        # transaction, which began earlier: until that later marker is replicated,
        # first_unstable_offset is at most the first offset of the other transaction.
        self._unreplicated: deque[tuple[int, int]] = deque()
        self.first_unstable_offset = INT64_MAX
        """The first offset of the earliest undecided transaction; INT64_MAX without one."""
        self._update_first_offset()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over (first offset, producer id) of each open transaction, in ascending order."""
        return iter(self._open.items())

    def add_transaction(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction, whose first batch has just been appended at ``first_offset``."""
        self._open[first_offset] = producer_id
        if first_offset < self.first_unstable_offset:
            self.first_unstable_offset = first_offset

    def stable_offset_after(self, first_offset: int, marker_offset: int) -> int:
        """Return the last stable offset that holds once the open transaction that began at
        ``first_offset`` has ended with the marker at ``marker_offset`` and the marker is
        replicated."""
        for offset in self._open:
            if offset != first_offset:
                return offset
        return marker_offset + 1

    def end_transaction(self, first_offset: int, marker_offset: int) -> None:
        """End the transaction that began at ``first_offset``, whose marker has been appended. The
        transaction stays undecided until the high watermark passes the marker."""
        self._open.pop(first_offset, None)
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[-1][0] >= first_offset:
            unreplicated.pop()
        unreplicated.append((first_offset, marker_offset))
        self._update_first_offset()

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Drop the ended transactions whose marker is below the new high watermark."""
        unreplicated = self._unreplicated
        if unreplicated and unreplicated[0][1] < high_watermark:
            while unreplicated and unreplicated[0][1] < high_watermark:
                unreplicated.popleft()
            self._update_first_offset()

    def copy_ended_from(self, other: "UndecidedTransactions") -> None:
        """Replace the ended transactions whose marker is not replicated by those of ``other``,
        which recovery has found from an older snapshot; the open transactions stay."""
        self._unreplicated = deque(other._unreplicated)
        self._update_first_offset()

    def clear(self, begun: Iterable[tuple[int, int]] = ()) -> None:
        """Drop all transactions and add the open transactions of ``begun``, pairs of first offset
        and producer id."""
        self._open = OrderedDict(sorted(begun))
        self._unreplicated.clear()
        self._update_first_offset()

    def _update_first_offset(self) -> None:
        first = next(iter(self._open), INT64_MAX)
        if self._unreplicated:
            first = min(first, self._unreplicated[0][0])
        self.first_unstable_offset = first
