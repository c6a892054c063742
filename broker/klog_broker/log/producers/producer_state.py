"""The state of a partition's producers: epoch, last five batches, and open transaction of each.

An append is first checked, which changes nothing, and applied to the state once the batch is in the
log. (Kafka's ProducerStateManager and ProducerAppendInfo; KIP-98, KIP-360, KIP-890.)
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog_broker.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from klog_broker.log.producers.undecided_transactions import UndecidedTransactions
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
    """A producer's batch: its sequences, its offsets, and the log append time in its Produce
    response."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp_ms: int  # the largest timestamp of the batch's records
    log_append_time_ms: int  # as in the Produce response: -1 for CreateTime


class ProducerHead(NamedTuple):
    """The producer fields of a batch's header."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int


class ProducerMarker(NamedTuple):
    """A transaction marker of a producer, with the marker's offset in the log."""

    producer_id: int
    producer_epoch: int
    offset: int
    timestamp_ms: int
    marker: EndTransactionMarker

    @property
    def last_offset(self) -> int:
        """The marker's offset: a marker is the only record of its batch."""
        return self.offset

    @property
    def is_abort(self) -> bool:
        return self.marker.control_type is ControlType.ABORT


class ProducerEntry:
    """The state of one producer: the epoch, the window (the last batches of that epoch, at most
    five, the oldest first), and the first offset of the open transaction (-1: none)."""

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
        self.last_timestamp_ms = -1  # the timestamp of the last batch or marker
        # Wall-clock time of the producer's last append, or a later time if the producer was
        # restored from files. The expiry of producers uses this time, because the timestamps in
        # batches can be old.
        self.seen_ms = seen_ms

    @property
    def last_sequence(self) -> int:
        """The last sequence of the producer's current epoch; -1 before the epoch's first batch."""
        return self.batches[-1].last_sequence if self.batches else -1

    def duplicate_of(self, head: ProducerHead) -> ProducerBatch | None:
        """Return the batch with the epoch and sequences of ``head`` among the producer's last five
        batches; None without such a batch."""
        if head.producer_epoch == self.producer_epoch:
            for batch in self.batches:
                if (
                    batch.first_sequence == head.first_sequence
                    and batch.last_sequence == head.last_sequence
                ):
                    return batch
        return None

    def has_ongoing_transaction(self, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open, and ``producer_epoch`` is its epoch."""
        return self.current_transaction_first_offset >= 0 and producer_epoch == self.producer_epoch

    def add(self, producer_epoch: int, batch: ProducerBatch) -> None:
        """Add an appended batch to the producer's last batches, of which at most five are kept. The
        first batch of a new epoch replaces all earlier batches."""
        if producer_epoch != self.producer_epoch:
            self.begin_epoch(producer_epoch)
        self.batches.append(batch)
        if len(self.batches) > WINDOW_BATCHES:
            del self.batches[0]
        self.last_timestamp_ms = batch.timestamp_ms

    def begin_epoch(self, producer_epoch: int) -> None:
        """Set the producer epoch, and forget the batches of the earlier epoch."""
        self.producer_epoch = ProducerEpoch(producer_epoch)
        self.batches.clear()


def next_sequence(sequence: int) -> int:
    """Return the sequence after ``sequence``; 0 follows 2^31 - 1."""
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


class ProducerStates:
    """The states of all producers of a partition, as the batches before ``end_offset`` have made
    them."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.end_offset = Offset(0)
        self.transactions = UndecidedTransactions()
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # --- appends: check a batch, then apply it ---------------------------------------------------
    def check_client_batch(
        self,
        head: ProducerHead,
        *,
        is_transactional: bool = False,
        guard: VerificationGuard | None = None,
    ) -> ProducerBatch | None:
        """Check whether a client's batch may be appended. Returns None, or the stored batch if the
        client's batch is a duplicate. Changes nothing.

        Raises InvalidTransactionState, InvalidProducerEpoch or OutOfOrderSequence. A producer
        without state may begin with any sequence, unless the batch begins a transaction: then no
        batch with a lower sequence may wait for the same confirmation, and from transaction version
        2 on the sequence must be 0. A new epoch must begin with sequence 0. ``guard`` is the proof
        that the transaction coordinator has confirmed the transaction (KIP-890). A batch that
        begins a transaction needs this proof.
        """
        entry = self._entries.get(head.producer_id)
        if entry is not None:
            duplicate = entry.duplicate_of(head)
            if duplicate is not None:
                return duplicate
        is_ongoing = entry is not None and entry.has_ongoing_transaction(head.producer_epoch)
        begins = is_transactional and not is_ongoing
        if begins:
            self.verifications.check_guard(head.producer_id, guard)
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

    def check_coordinator_batch(self, head: ProducerHead, *, is_transactional: bool) -> None:
        """Check whether a batch that a coordinator of this broker writes (such as offsets that are
        committed in a transaction) may be appended. Sequences are not checked, and the transaction
        coordinator need not confirm the transaction first. Raises InvalidProducerEpoch or
        InvalidTransactionState."""
        entry = self._entries.get(head.producer_id)
        if entry is not None:
            _check_epoch(head, entry)
            _check_kind(entry, is_transactional=is_transactional)

    def check_marker(self, marker: ProducerMarker, transaction_version: int) -> None:
        """Raise InvalidProducerEpoch or CoordinatorFenced if a marker may not be appended.

        From transaction version 2 on, a marker's epoch is greater than the epoch of the transaction
        that the marker ends (KIP-890). An equal epoch is accepted only without an open transaction,
        as for a repeated marker, or if the epoch is the largest possible one.
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

    def aborted_entry_of(self, marker: ProducerMarker) -> AbortedEntry | None:
        """Return the transaction index entry for the marker; None unless the marker aborts an open
        transaction."""
        entry = self._entries.get(marker.producer_id)
        if not marker.is_abort or entry is None or entry.current_transaction_first_offset < 0:
            return None
        first = entry.current_transaction_first_offset
        stable = self.transactions.stable_offset_after(first, marker.offset)
        return AbortedEntry(marker.producer_id, first, marker.offset, stable)

    def apply_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        batch: ProducerBatch,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Update the producer's state with a batch that has been checked and appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        entry.add(producer_epoch, batch)
        entry.seen_ms = now_ms
        if is_transactional and entry.current_transaction_first_offset < 0:
            self.begin_transaction(producer_id, batch.first_offset)

    def begin_transaction(self, producer_id: int, first_offset: Offset) -> None:
        """Record that a transaction of the producer is open since ``first_offset``. The first batch
        of the transaction must already be in the producer's state."""
        self._entries[producer_id].current_transaction_first_offset = first_offset
        self.transactions.add_transaction(producer_id, first_offset)
        self.verifications.remove_verification(producer_id)

    def apply_marker(self, marker: ProducerMarker, now_ms: int) -> None:
        """Update the producer's state with a marker that has been checked and appended."""
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
            self.transactions.end_transaction(first, marker.offset)
        self.verifications.remove_verification(producer_id)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that have no open transaction and appended nothing for
        ``expiration_ms``, and the verifications of transactions (KIP-890) that began
        ``expiration_ms`` ago or earlier. Returns the number of removed producers."""
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
        """Remove all producers and transactions from these states, but not the verifications, and
        set ``end_offset``."""
        self._entries.clear()
        self.transactions.clear()
        self.end_offset = Offset(end_offset)

    # --- producer snapshots ----------------------------------------------------------------------
    def snapshot(self) -> list[ProducerSnapshotEntry]:
        """Return a snapshot entry for each producer. An entry has at most the producer's last
        batch, because Kafka's snapshot format holds no more."""
        return [_snapshot_entry(entry) for entry in self._entries.values()]

    def restore(
        self, entries: Iterable[ProducerSnapshotEntry], end_offset: int, *, seen_ms: int
    ) -> None:
        """Replace all producers' states by those of a snapshot at ``end_offset``. Each producer
        then has at most its last batch, because a snapshot holds no more; WindowRefill adds up to
        four batches before this batch from the log.

        ``seen_ms`` is the time at which the snapshot was written. A producer's idle time counts
        from then, or from the timestamp of its last batch if this is later.
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
            f"epoch {entry.producer_epoch}, which fences the older epoch"
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
    # A producer state without batches (``last`` is -1) exists because of a transaction marker,
    # which set the epoch. The first batch of this epoch must have sequence 0.
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
