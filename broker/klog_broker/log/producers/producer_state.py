"""What is known of the producers of a partition: epochs, sequences, the window of five batches,
and the transaction that each has open.

Checking an append changes nothing; what it would change comes back and is applied once the append
is complete. (Kafka's ProducerStateManager and ProducerAppendInfo; KIP-98, KIP-360, KIP-890.)
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog_broker.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from klog_broker.log.producers.open_transactions import Transactions
from klog_broker.log.producers.verification import VerificationGuard, Verifications
from pyspark_klog.ids import NO_PRODUCER_EPOCH, Offset, ProducerEpoch, ProducerId
from pyspark_klog.records.control import ControlType, EndTransactionMarker
from pyspark_klog.records.layout import INT16_MAX, INT32_MAX
from pyspark_klog.storage.producer_snapshot import ProducerSnapshotEntry
from pyspark_klog.storage.transaction_index import AbortedEntry

WINDOW_BATCHES = 5
MAX_SEQUENCE = INT32_MAX
_EPOCH_BUMPING_VERSION = 2


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


class ProducerMarker(NamedTuple):
    """The end of a producer's transaction, with the place that its marker got."""

    producer_id: int
    producer_epoch: int
    offset: int
    timestamp_ms: int
    marker: EndTransactionMarker

    @property
    def last_offset(self) -> int:
        """A marker has a batch of its own."""
        return self.offset

    @property
    def is_abort(self) -> bool:
        return self.marker.control_type is ControlType.ABORT


class ProducerEntry:
    """One producer: its epoch and its last batches in that epoch, the oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp_ms",
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
        self.last_timestamp_ms = -1  # of its last batch or marker
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

    def has_ongoing_transaction(self, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch is open."""
        return self.current_transaction_first_offset >= 0 and producer_epoch == self.producer_epoch

    def add(self, producer_epoch: int, batch: ProducerBatch) -> None:
        """The batch is in the log: move the window on; a new epoch begins it anew."""
        if producer_epoch != self.producer_epoch:
            self.begin_epoch(producer_epoch)
        self.batches.append(batch)
        if len(self.batches) > WINDOW_BATCHES:
            del self.batches[0]
        self.last_timestamp_ms = batch.timestamp_ms

    def begin_epoch(self, producer_epoch: int) -> None:
        """The next batch of the epoch is its first."""
        self.producer_epoch = ProducerEpoch(producer_epoch)
        self.batches.clear()


def next_sequence(sequence: int) -> int:
    """0 follows 2^31 - 1."""
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


class ProducerStates:
    """All producers of a partition, up to ``end_offset``."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.end_offset = Offset(0)
        self.transactions = Transactions()
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # --- an append: check, then apply ------------------------------------------------------------
    def check(
        self,
        head: ProducerHead,
        *,
        is_transactional: bool = False,
        guard: VerificationGuard | None = None,
    ) -> ProducerBatch | None:
        """Whether a client's batch may be appended: None, or the batch that it is a duplicate of.

        Raises InvalidTransactionState, InvalidProducerEpoch or OutOfOrderSequence. A producer
        without state may begin with any sequence; a new epoch begins with 0. A batch that begins a
        transaction needs the guard of its verification.
        """
        entry = self._entries.get(head.producer_id)
        if entry is not None:
            duplicate = entry.duplicate_of(head)
            if duplicate is not None:
                return duplicate
        is_ongoing = entry is not None and entry.has_ongoing_transaction(head.producer_epoch)
        begins = is_transactional and not is_ongoing
        if begins:
            self.verifications.check(head.producer_id, guard)
        if entry is not None:
            _check_epoch(head, entry)
        if begins:
            is_first = entry is None or not entry.batches
            self.verifications.check_sequence(
                head.producer_id, head.first_sequence, is_first=is_first
            )
        if entry is not None:
            _check_sequence(head, entry)
            _check_kind(entry, is_transactional=is_transactional)
        return None

    def check_of_coordinator(self, head: ProducerHead, *, is_transactional: bool) -> None:
        """The same for what a coordinator appends: sequences do not count, and nobody but it knows
        of its transactions. Raises InvalidProducerEpoch or InvalidTransactionState."""
        entry = self._entries.get(head.producer_id)
        if entry is not None:
            _check_epoch(head, entry)
            _check_kind(entry, is_transactional=is_transactional)

    def check_marker(self, marker: ProducerMarker, transaction_version: int) -> None:
        """Whether the marker may be appended. InvalidProducerEpoch, CoordinatorFenced.

        From transaction version 2 on a marker's epoch is greater than that of the batches which it
        ends (KIP-890). The same epoch is a marker that comes again, or the last epoch of all.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return
        epoch, known = marker.producer_epoch, entry.producer_epoch
        is_over = epoch < known
        if transaction_version >= _EPOCH_BUMPING_VERSION and epoch == known:
            is_over = entry.current_transaction_first_offset >= 0 and epoch != INT16_MAX
        if is_over:
            raise InvalidProducerEpoch(
                f"a marker for producer {marker.producer_id} has epoch {epoch}, the log has seen "
                f"epoch {known} (transaction version {transaction_version})"
            )
        if marker.marker.coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFenced(
                f"a marker for producer {marker.producer_id} comes from coordinator epoch "
                f"{marker.marker.coordinator_epoch}, the log has seen {entry.coordinator_epoch}"
            )

    def aborted_by(self, marker: ProducerMarker) -> AbortedEntry | None:
        """What the marker's row in the transaction index says; None if it aborts nothing."""
        entry = self._entries.get(marker.producer_id)
        if not marker.is_abort or entry is None or entry.current_transaction_first_offset < 0:
            return None
        first = entry.current_transaction_first_offset
        stable = self.transactions.stable_offset_after(first, marker.offset)
        return AbortedEntry(marker.producer_id, first, marker.offset, stable)

    def apply(
        self,
        producer_id: int,
        producer_epoch: int,
        batch: ProducerBatch,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """The batch, checked before, has been appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        entry.add(producer_epoch, batch)
        entry.seen_ms = now_ms
        if is_transactional and entry.current_transaction_first_offset < 0:
            self.begin_transaction(producer_id, batch.first_offset)

    def begin_transaction(self, producer_id: int, first_offset: Offset) -> None:
        """The transaction's first batch, checked before, was applied."""
        self._entries[producer_id].current_transaction_first_offset = first_offset
        self.transactions.begin(producer_id, first_offset)
        self.verifications.end(producer_id)

    def apply_marker(self, marker: ProducerMarker, now_ms: int) -> None:
        """The marker, checked before, has been appended."""
        producer_id, producer_epoch = marker.producer_id, marker.producer_epoch
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        elif producer_epoch != entry.producer_epoch:
            entry.begin_epoch(producer_epoch)
        entry.coordinator_epoch = marker.marker.coordinator_epoch
        entry.last_timestamp_ms = marker.timestamp_ms
        entry.seen_ms = now_ms
        first = entry.current_transaction_first_offset
        if first >= 0:
            entry.current_transaction_first_offset = Offset(-1)
            self.transactions.end(first, marker.offset)
        self.verifications.end(producer_id)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for so long, but for those in a transaction;
        returns how many."""
        self.verifications.expire(now_ms, expiration_ms)
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
        self.transactions.clear()
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
            entry.last_timestamp_ms = row.timestamp_ms
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
        self.transactions.clear(
            (each.current_transaction_first_offset, each.producer_id)
            for each in self
            if each.current_transaction_first_offset >= 0
        )


def _check_epoch(head: ProducerHead, entry: ProducerEntry) -> None:
    if head.producer_epoch < entry.producer_epoch:
        raise InvalidProducerEpoch(
            f"producer {head.producer_id} has epoch {head.producer_epoch}, the log has seen "
            f"epoch {entry.producer_epoch}: another producer with the same id took over"
        )


def _check_sequence(head: ProducerHead, entry: ProducerEntry) -> None:
    if head.producer_epoch != entry.producer_epoch:
        if head.first_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {head.producer_id}: the first batch of epoch {head.producer_epoch} has "
                f"sequence {head.first_sequence}, expected 0 (the last epoch was "
                f"{entry.producer_epoch})"
            )
        return
    last = entry.last_sequence
    if last >= 0 and head.first_sequence != next_sequence(last):
        raise OutOfOrderSequence(
            f"producer {head.producer_id} epoch {head.producer_epoch}: a batch of sequences"
            f" {head.first_sequence} to {head.last_sequence} after {last}, expected"
            f" {next_sequence(last)} or one of the last {WINDOW_BATCHES} batches again"
        )
    # Without batches the epoch began with a marker.
    if last < 0 and head.first_sequence != 0:
        raise OutOfOrderSequence(
            f"producer {head.producer_id} epoch {head.producer_epoch}: sequence"
            f" {head.first_sequence} is the first of its epoch, expected 0"
        )


def _check_kind(entry: ProducerEntry, *, is_transactional: bool) -> None:
    if entry.current_transaction_first_offset >= 0 and not is_transactional:
        raise InvalidTransactionState(
            f"producer {entry.producer_id} has a transaction open since offset "
            f"{entry.current_transaction_first_offset}: its batches must be transactional"
        )


def _snapshot_entry(entry: ProducerEntry) -> ProducerSnapshotEntry:
    last = entry.batches[-1] if entry.batches else None
    timestamp_ms = entry.last_timestamp_ms
    if last is None:
        return ProducerSnapshotEntry(
            entry.producer_id,
            entry.producer_epoch,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_transaction_first_offset=entry.current_transaction_first_offset,
        )
    return ProducerSnapshotEntry(
        entry.producer_id,
        entry.producer_epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        timestamp_ms,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )
