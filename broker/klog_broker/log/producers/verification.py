"""Transactions that are being verified: whether the coordinator knows of them (KIP-890).

A producer's first transactional batch is appended only if the transaction coordinator has said that
the partition belongs to the producer's open transaction: else a batch that was late would open a
transaction that nobody ends. Between the question and the append a marker can come, so that the
answer is void: whoever asks is given a guard, which must still be the same one at the append.
"""

from klog_broker.log.errors import InvalidTransactionState, OutOfOrderSequence

_MOST = 1_000
"""So many at a time: who asks for others lets those go that were begun first."""


class VerificationGuard:
    """What a verification is known by; as good as its identity."""

    __slots__ = ()


class Verification:
    """A producer that has been asked about, and has not begun its transaction yet."""

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

    def see(self, producer_epoch: int, sequence: int) -> None:
        """Another batch of the producer is to begin the transaction."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Verifications:
    """Those of one log, by producer (Kafka's VerificationStateEntry)."""

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def begin(
        self,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> VerificationGuard:
        """The guard that an append must bring; requests that wait together have the same one."""
        found = self._by_producer.get(producer_id)
        if found is None:
            if len(self._by_producer) >= _MOST:
                del self._by_producer[next(iter(self._by_producer))]
            found = self._by_producer[producer_id] = Verification(
                producer_epoch, sequence, now_ms, supports_epoch_bump=supports_epoch_bump
            )
        found.see(producer_epoch, sequence)
        return found.guard

    def has(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether the guard is the one that the producer has now."""
        found = self._by_producer.get(producer_id)
        return found is not None and found.guard is guard

    def check(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """InvalidTransactionState unless the guard is the one that the producer has now."""
        if guard is None or not self.has(producer_id, guard):
            raise InvalidTransactionState(
                f"a batch of producer {producer_id} is not part of an ongoing transaction"
            )

    def check_sequence(self, producer_id: int, sequence: int, *, is_first: bool) -> None:
        """OutOfOrderSequence if an earlier batch of the transaction is still to come; ``is_first``
        if the log knows of no batch of the producer."""
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
                f"producer {producer_id}: a batch of sequence {sequence} was to begin the "
                f"transaction, while one of sequence {found.lowest_sequence} is under way"
            )

    def end(self, producer_id: int) -> None:
        """The transaction has begun, or a marker has come."""
        self._by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those that were begun so long ago."""
        for producer_id, each in list(self._by_producer.items()):
            if now_ms - each.since_ms >= expiration_ms:
                del self._by_producer[producer_id]
