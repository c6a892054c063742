"""Verification of transactions with the transaction coordinator (KIP-890).

A client's batch that begins a transaction in this log is appended only after the transaction
coordinator has confirmed that the partition belongs to the producer's open transaction. Without
this check, a delayed batch could open a transaction that no marker ever ends. A marker that is
appended between the coordinator's response and the batch makes the confirmation invalid. Hence each
verification has a guard object, and the append must present the guard that is valid at that time.
"""

from klog_broker.log.errors import InvalidTransactionState, OutOfOrderSequence

_MOST = 1_000
"""The maximum number of verifications (questions to the transaction coordinator, KIP-890) of one
log; a new one then removes the oldest."""


class VerificationGuard:
    """Stands for one question to the transaction coordinator: is the partition part of the
    producer's open transaction? A client's batch that begins the transaction is appended only with
    the guard of a question that is still valid. Guards are compared by identity."""

    __slots__ = ()


class VerificationStateEntry:
    """A question to the transaction coordinator whether the partition is part of a producer's open
    transaction. The entry exists from the Produce request that needs the answer until the
    transaction begins in the log or a transaction marker of the producer is appended. Old entries
    are removed earlier (``Verifications.expire``, _MOST)."""

    __slots__ = (
        "guard",
        "lowest_sequence",
        "producer_epoch",
        "since_ms",
        "supports_epoch_bump",
    )

    def __init__(
        self, producer_epoch: int, sequence: int, since_ms: int, *, supports_epoch_bump: bool
    ) -> None:
        self.guard = VerificationGuard()
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.since_ms = since_ms
        self.supports_epoch_bump = supports_epoch_bump

    def add_batch(self, producer_epoch: int, sequence: int) -> None:
        """Record a further batch of the same producer that waits for the transaction coordinator's
        answer. Keeps the newest epoch, and the lowest sequence of that epoch."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Verifications:
    """By producer id: the transactions that the transaction coordinator must confirm before they
    begin in this log (KIP-890)."""

    def __init__(self) -> None:
        self._by_producer: dict[int, VerificationStateEntry] = {}

    def create_guard(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> VerificationGuard:
        """Return the guard with which a batch must be appended once the transaction coordinator has
        confirmed the producer's transaction. Requests that wait for the same answer of the
        coordinator get the same guard."""
        found = self._by_producer.get(producer_id)
        if found is None:
            if len(self._by_producer) >= _MOST:
                del self._by_producer[next(iter(self._by_producer))]
            found = self._by_producer[producer_id] = VerificationStateEntry(
                producer_epoch, sequence, now_ms, supports_epoch_bump=supports_epoch_bump
            )
        found.add_batch(producer_epoch, sequence)
        return found.guard

    def has_guard(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether ``guard`` belongs to the producer's current verification, the question to the
        transaction coordinator (KIP-890)."""
        found = self._by_producer.get(producer_id)
        return found is not None and found.guard is guard

    def check_guard(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """Raise InvalidTransactionState unless ``guard`` belongs to the producer's current
        verification, the question to the transaction coordinator (KIP-890)."""
        if guard is None or not self.has_guard(producer_id, guard):
            raise InvalidTransactionState(
                f"producer {producer_id}: the transaction coordinator has not confirmed that the "
                f"batch is part of an ongoing transaction, or the confirmation is no longer valid"
            )

    def check_sequence(self, producer_id: int, sequence: int, *, is_first: bool) -> None:
        """Raise OutOfOrderSequence if an earlier batch of the transaction has yet to be appended.

        ``is_first`` is true if the producer state has no batch of the producer. Such a producer
        must begin with sequence 0 if its client supports epoch bumps (transaction version 2).
        """
        found = self._by_producer.get(producer_id)
        if found is None:
            return
        if found.supports_epoch_bump and sequence != 0 and is_first:
            raise OutOfOrderSequence(
                f"producer {producer_id}: a transaction's first batch has sequence {sequence}, "
                f"expected 0"
            )
        if sequence > found.lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {producer_id}: a batch with sequence {sequence} cannot begin the "
                f"transaction before the batch with sequence {found.lowest_sequence} is appended"
            )

    def remove_verification(self, producer_id: int) -> None:
        """Remove the producer's verification, the question to the transaction coordinator: its
        transaction has begun in this log, or a transaction marker of the producer was appended."""
        self._by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove the verifications (questions to the transaction coordinator) that began
        ``expiration_ms`` ago or earlier."""
        for producer_id, each in list(self._by_producer.items()):
            if now_ms - each.since_ms >= expiration_ms:
                del self._by_producer[producer_id]
