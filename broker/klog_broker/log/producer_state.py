"""What is known of the producers of a partition: epochs, sequences, the window of five batches.

Checking an append changes nothing; what it would change comes back and is applied once the append
is complete. (Kafka's ProducerStateManager; KIP-98, KIP-360.)
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog_broker.log.errors import InvalidProducerEpoch, OutOfOrderSequence
from pyspark_klog.ids import NO_PRODUCER_EPOCH, Offset, ProducerEpoch, ProducerId
from pyspark_klog.records.layout import INT32_MAX
from pyspark_klog.storage.producer_snapshot import ProducerSnapshotEntry

WINDOW_BATCHES = 5
MAX_SEQUENCE = INT32_MAX


class ProducerBatch(NamedTuple):
    """A batch of a producer, with the places it got and what its reply said."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp_ms: int  # the largest of its records
    log_append_time_ms: int  # as in the reply: -1 under create time


class ProducerHead(NamedTuple):
    """The producer fields of a batch's header."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int


class ProducerEntry:
    """One producer: its epoch and its last batches in that epoch, the oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "producer_epoch",
        "producer_id",
        "seen_ms",
    )

    def __init__(
        self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH, seen_ms: int = 0
    ) -> None:
        self.producer_id = ProducerId(producer_id)
        self.producer_epoch = ProducerEpoch(producer_epoch)
        self.batches: list[ProducerBatch] = []
        self.coordinator_epoch = -1
        self.current_transaction_first_offset = Offset(-1)
        # When its last batch came, by the wall's clock: batches may carry old timestamps.
        self.seen_ms = seen_ms

    @property
    def last_sequence(self) -> int:
        """-1 before the first batch of the epoch."""
        return self.batches[-1].last_sequence if self.batches else -1

    def duplicate_of(self, head: ProducerHead) -> ProducerBatch | None:
        """The batch in the window with the same epoch and sequences."""
        if head.producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if (
                    batch.first_sequence == head.first_sequence
                    and batch.last_sequence == head.last_sequence
                ):
                    return batch
        return None

    def add(self, producer_epoch: int, batch: ProducerBatch) -> None:
        """The batch is in the log: move the window on; a new epoch begins it anew."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = ProducerEpoch(producer_epoch)
            self.batches.clear()
        self.batches.append(batch)
        if len(self.batches) > WINDOW_BATCHES:
            del self.batches[0]


def next_sequence(sequence: int) -> int:
    """0 follows 2^31 - 1."""
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


class ProducerStates:
    """All producers of a partition, up to ``end_offset``."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.end_offset = Offset(0)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # --- an append: check, then apply ------------------------------------------------------------
    def check(self, head: ProducerHead, *, check_sequence: bool = True) -> ProducerBatch | None:
        """Whether the batch may be appended: None, or the batch that it is a duplicate of.

        Raises InvalidProducerEpoch or OutOfOrderSequence. A producer without state may begin with
        any sequence; a new epoch begins with 0.
        """
        entry = self._entries.get(head.producer_id)
        if entry is None:
            return None
        if head.producer_epoch == entry.producer_epoch:
            if not check_sequence:
                return None
            duplicate = entry.duplicate_of(head)
            if duplicate is not None:
                return duplicate
            last = entry.last_sequence
            expected = next_sequence(last)
            # An entry without batches comes from a snapshot of control records only.
            if last >= 0 and head.first_sequence != expected:
                raise OutOfOrderSequence(
                    f"producer {head.producer_id} epoch {head.producer_epoch}: a batch of sequences"
                    f" {head.first_sequence} to {head.last_sequence} after {last}, expected"
                    f" {expected} or one of the last {WINDOW_BATCHES} batches again"
                )
            if last < 0 and head.first_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {head.producer_id} epoch {head.producer_epoch}: sequence"
                    f" {head.first_sequence} is the first of its epoch, expected 0"
                )
            return None
        if head.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {head.producer_id} has epoch {head.producer_epoch}, the log has seen "
                f"epoch {entry.producer_epoch}: another producer with the same id took over"
            )
        if check_sequence and head.first_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {head.producer_id}: the first batch of epoch {head.producer_epoch} has "
                f"sequence {head.first_sequence}, expected 0 (the last epoch was "
                f"{entry.producer_epoch})"
            )
        return None

    def apply(
        self, producer_id: int, producer_epoch: int, batch: ProducerBatch, now_ms: int
    ) -> None:
        """The batch, checked before, has been appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        entry.add(producer_epoch, batch)
        entry.seen_ms = now_ms

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for so long; returns how many."""
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if now_ms - entry.seen_ms >= expiration_ms
            and entry.current_transaction_first_offset < 0
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def clear(self, end_offset: int) -> None:
        """Know of no producer."""
        self._entries.clear()
        self.end_offset = Offset(end_offset)

    # --- snapshots -------------------------------------------------------------------------------
    def snapshot(self) -> list[ProducerSnapshotEntry]:
        """One entry for each producer, of its last batch only: all that the format can say."""
        return [_snapshot_entry(entry) for entry in self._entries.values()]

    def restore(
        self, entries: Iterable[ProducerSnapshotEntry], end_offset: int, *, seen_ms: int
    ) -> None:
        """Start from a snapshot. The windows are then to be filled: :meth:`refill`.

        ``seen_ms`` is when the snapshot was written, as far as is known.
        """
        self.clear(end_offset)
        for row in entries:
            seen = max(row.timestamp_ms, seen_ms)
            entry = ProducerEntry(row.producer_id, row.producer_epoch, seen)
            entry.coordinator_epoch = row.coordinator_epoch
            entry.current_transaction_first_offset = row.current_transaction_first_offset
            if row.last_sequence >= 0:
                first = (row.last_sequence - row.offset_delta) & MAX_SEQUENCE
                entry.batches.append(
                    ProducerBatch(
                        first,
                        row.last_sequence,
                        Offset(row.last_offset - row.offset_delta),
                        row.last_offset,
                        row.timestamp_ms,
                        -1,
                    )
                )
            self._entries[row.producer_id] = entry


class WindowRefill:
    """Fills the windows of producers that came from a snapshot, out of older batches of the log.

    Feed it pieces of the log from the newest to the oldest, each one's batches in order, until
    :attr:`is_complete`.
    """

    def __init__(self, states: ProducerStates, log_start_offset: int) -> None:
        self._end_offset = states.end_offset
        self._wanted = {
            entry.producer_id: entry
            for entry in states
            if entry.batches and entry.batches[-1].last_offset >= log_start_offset
        }

    @property
    def is_complete(self) -> bool:
        """Whether every window is full, or holds the first batch of its epoch."""
        return not self._wanted

    def add_block(self, batches: Iterable[tuple[ProducerHead, ProducerBatch]]) -> None:
        """The batches of one piece, in order; those from the snapshot's offset on are ignored."""
        found: dict[int, list[ProducerBatch]] = {}
        for head, batch in batches:
            entry = self._wanted.get(ProducerId(head.producer_id))
            if (
                entry is not None
                and head.producer_epoch == entry.producer_epoch
                and batch.last_offset < self._end_offset
            ):
                window = found.setdefault(head.producer_id, [])
                window.append(batch)
                del window[:-WINDOW_BATCHES]
        for producer_id, older in found.items():
            entry = self._wanted[ProducerId(producer_id)]
            known = entry.batches
            if older[-1].last_offset == known[0].last_offset:
                # The snapshot's own batch, now with what its reply had said.
                known = known[1:]
            entry.batches = (older + known)[-WINDOW_BATCHES:]
        for entry in list(self._wanted.values()):
            if self._is_complete(entry):
                del self._wanted[entry.producer_id]

    @staticmethod
    def _is_complete(entry: ProducerEntry) -> bool:
        if len(entry.batches) >= WINDOW_BATCHES:
            return True
        # Sequence 0 is the first of the epoch, unless 2^31 records may lie before it.
        first = entry.batches[0]
        return first.first_sequence == 0 and first.first_offset <= MAX_SEQUENCE


def _snapshot_entry(entry: ProducerEntry) -> ProducerSnapshotEntry:
    last = entry.batches[-1] if entry.batches else None
    if last is None:
        return ProducerSnapshotEntry(
            entry.producer_id,
            entry.producer_epoch,
            timestamp_ms=entry.seen_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_transaction_first_offset=entry.current_transaction_first_offset,
        )
    return ProducerSnapshotEntry(
        entry.producer_id,
        entry.producer_epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        last.timestamp_ms,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )
