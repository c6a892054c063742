"""Where the transactions of a log's producers begin and end (KIP-98).

A transaction begins with its producer's first transactional batch and ends with a marker. It is
undecided while it is open, and until its marker is replicated.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from pyspark_klog.records.layout import INT64_MAX


class Transactions:
    """Where the undecided transactions begin. (The half of Kafka's ProducerStateManager that is
    ordered by offset.)"""

    __slots__ = ("_open", "_unreplicated", "first_unstable_offset")

    def __init__(self, begun: Iterable[tuple[int, int]] = ()) -> None:
        # First offset to producer id, rising: a new one begins behind all others.
        self._open: OrderedDict[int, int] = OrderedDict(sorted(begun))
        # (first offset, marker's offset) of those that ended above the high watermark. Both rise:
        # one that began behind a later one's begin is never the first, and left out.
        self._unreplicated: deque[tuple[int, int]] = deque()
        self.first_unstable_offset = INT64_MAX
        """Where the first undecided transaction begins; INT64_MAX if there is none."""
        self._look()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """First offset and producer id of each open transaction, in order."""
        return iter(self._open.items())

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A producer's first transactional batch has been appended, behind all others."""
        self._open[first_offset] = producer_id
        if first_offset < self.first_unstable_offset:
            self.first_unstable_offset = first_offset

    def stable_offset_after(self, first_offset: int, marker_offset: int) -> int:
        """What the last stable offset will be once the open transaction that began at
        ``first_offset`` has ended and its marker is replicated."""
        for offset in self._open:
            if offset != first_offset:
                return offset
        return marker_offset + 1

    def end(self, first_offset: int, marker_offset: int) -> None:
        """The marker of the transaction that began at ``first_offset`` has been appended."""
        self._open.pop(first_offset, None)
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[-1][0] >= first_offset:
            unreplicated.pop()
        unreplicated.append((first_offset, marker_offset))
        self._look()

    def reach(self, high_watermark: int) -> None:
        """What lies before the offset is replicated."""
        unreplicated = self._unreplicated
        if unreplicated and unreplicated[0][1] < high_watermark:
            while unreplicated and unreplicated[0][1] < high_watermark:
                unreplicated.popleft()
            self._look()

    def take_ended(self, other: "Transactions") -> None:
        """Know of those that ``other`` has seen end, and of no others that ended."""
        self._unreplicated = deque(other._unreplicated)
        self._look()

    def clear(self, begun: Iterable[tuple[int, int]] = ()) -> None:
        """Know of these open ones (first offset, producer id) and of nothing else."""
        self._open = OrderedDict(sorted(begun))
        self._unreplicated.clear()
        self._look()

    def _look(self) -> None:
        first = next(iter(self._open), INT64_MAX)
        if self._unreplicated:
            first = min(first, self._unreplicated[0][0])
        self.first_unstable_offset = first
