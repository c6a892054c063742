"""What a cleaner knows of transactions while it goes through a log (KIP-98; Kafka's
CleanedTransactionMetadata).

Batches of aborted transactions go at once. A marker may go only when a whole round has seen no
batch of its transaction any more, and then after its delete horizon.
"""

from collections import deque
from collections.abc import Iterable

from pyspark_klog.records.control import ControlType
from pyspark_klog.storage.transaction_index import AbortedEntry


class CleanedTransactions:
    """Goes along with one pass over batches, in their order. ``aborted``: those that may have
    batches there."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._aborted = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        # By producer id: the aborted transaction that is under way, and whether a batch was seen.
        self._aborting: dict[int, tuple[AbortedEntry, bool]] = {}
        self._committing: set[int] = set()
        self._kept: list[AbortedEntry] = []

    def take_kept(self) -> list[AbortedEntry]:
        """The aborted transactions whose markers have come since the last call, and which readers
        must still be told of."""
        kept, self._kept = self._kept, []
        return kept

    def is_void(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch comes: whether it was aborted."""
        self._begin_up_to(last_offset)
        found = self._aborting.get(producer_id)
        if found is None:
            self._committing.add(producer_id)
            return False
        self._aborting[producer_id] = (found[0], True)
        return True

    def is_bare(self, producer_id: int, offset: int, control_type: ControlType | None) -> bool:
        """A marker comes: whether no batch of its transaction is left. None is that of a control
        batch without its record: it was cleaned before."""
        self._begin_up_to(offset)
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            found = self._aborting.pop(producer_id, None)
            if found is None or not found[1]:
                return True
            self._kept.append(found[0])
            return False
        if control_type is ControlType.COMMIT:
            was_seen = producer_id in self._committing
            self._committing.discard(producer_id)
            return not was_seen
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._aborting.setdefault(entry.producer_id, (entry, False))
