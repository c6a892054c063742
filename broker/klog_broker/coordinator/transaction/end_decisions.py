"""Decides on EndTxn. Pure: no I/O. EndTxn 5 (transaction.version 2) raises the epoch (KIP-890),
unless a client of an older version began the transaction."""

from klog_broker.coordinator.transaction.decisions import (
    TransactionDecision,
    check_producer,
    checked_transition,
)
from klog_broker.coordinator.transaction.states import ENDED, REQUEST_ERRORS, TransactionRequest
from klog_broker.coordinator.transaction.transaction_metadata import (
    MAX_EPOCH,
    VERSION_RAISING,
    ProducerIdAndEpoch,
    TransactionMetadata,
    is_exhausted,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_ID
from pyspark_klog.state_records.transaction_log import TransactionState

_NONE = ErrorCode.NONE
_ONGOING = TransactionState.ONGOING


def end_needs_producer_id(known: TransactionMetadata | None, client_version: int) -> bool:
    """Whether :func:`decide_end` must get a new producer id: the producer's next transaction needs
    it, because the epochs of the current one are exhausted."""
    if known is None or not known.is_exhausted:
        return False
    return _raises(known, client_version) and known.state in (_ONGOING, *ENDED)


def decide_end(
    known: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    client_version: int,
    now_ms: int,
    *,
    is_commit: bool,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionDecision:
    """Decide on EndTxn: the producer commits or aborts.

    A client of transaction.version 2 gets the epoch, or the new producer id, of its next
    transaction. If the response to an EndTxn was lost, the client may repeat the EndTxn with the
    same result (commit or abort), producer id and epoch. The repeated EndTxn gets the same response
    once the transaction has ended, and CONCURRENT_TRANSACTIONS before. But an EndTxn 5 that did not
    raise the epoch, because an older client began the transaction, is not recognized as repeated.
    """
    if client_version >= VERSION_RAISING:
        return _end_raising(known, producer, now_ms, is_commit, next_producer_id)
    error = check_producer(known, producer)
    if known is None or error is not _NONE:
        return TransactionDecision(error)
    error = REQUEST_ERRORS[TransactionRequest.COMMIT if is_commit else TransactionRequest.ABORT][
        known.state
    ]
    if error is not _NONE or known.state is not _ONGOING:
        return TransactionDecision(error)
    # Responses before EndTxn 5 cannot carry a new epoch, so do not raise it.
    plain = known._replace(client_version=client_version)
    return TransactionDecision(_NONE, _prepare_completion(plain, now_ms, is_commit))


def _end_raising(
    known: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    now_ms: int,
    is_commit: bool,
    next_producer_id: int,
) -> TransactionDecision:
    if known is None:
        return TransactionDecision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_again = _is_repeated_end(known, producer)
    if known.producer_id != producer.producer_id and not is_again:
        return TransactionDecision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if is_again:
        error = REQUEST_ERRORS[
            TransactionRequest.COMMIT_AGAIN if is_commit else TransactionRequest.ABORT_AGAIN
        ][known.state]
        if error is not _NONE:
            return TransactionDecision(error)
        return TransactionDecision(_NONE, None, known.producer_id, known.producer_epoch)
    if known.producer_epoch != producer.producer_epoch:
        return TransactionDecision(ErrorCode.PRODUCER_FENCED)
    error = REQUEST_ERRORS[
        TransactionRequest.COMMIT_RAISING if is_commit else TransactionRequest.ABORT_RAISING
    ][known.state]
    if error is not _NONE:
        return TransactionDecision(error)
    if known.state is not _ONGOING:
        # The transaction has no partition yet, so the coordinator does not know it: the abort only
        # raises the epoch.
        known = known._replace(client_version=VERSION_RAISING, start_ms=now_ms)
    becomes = _prepare_completion(known, now_ms, is_commit, next_producer_id)
    # The response has the producer id and epoch as they will be after the completion.
    if becomes.next_producer_id != NO_PRODUCER_ID:
        return TransactionDecision(_NONE, becomes, becomes.next_producer_id, 0)
    return TransactionDecision(_NONE, becomes, becomes.producer_id, becomes.producer_epoch)


def _is_repeated_end(known: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether the request names the producer id and epoch from before their last change, as a
    repetition of the last EndTxn does.

    False if the last EndTxn did not raise the epoch: a lower epoch then belongs to a fenced
    producer.
    """
    if not known.raises_epoch:
        return False
    if known.producer_id == producer.producer_id:
        return known.producer_epoch == producer.producer_epoch + 1
    has_new_id = known.producer_epoch == 0 and known.state in ENDED
    was_exhausted = is_exhausted(producer.producer_epoch)
    return has_new_id and was_exhausted and known.previous_producer_id == producer.producer_id


def _raises(known: TransactionMetadata, client_version: int) -> bool:
    """Whether an EndTxn of this client raises the epoch.

    The client must have transaction.version 2, and so must the client that began an open
    transaction.
    """
    if client_version < VERSION_RAISING:
        return False
    return known.raises_epoch or known.state is not _ONGOING


def _prepare_completion(
    known: TransactionMetadata,
    now_ms: int,
    is_commit: bool,
    next_producer_id: int = NO_PRODUCER_ID,
) -> TransactionMetadata:
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    if not known.raises_epoch:
        return checked_transition(known, known._replace(state=state, update_ms=now_ms))
    return checked_transition(
        known,
        known._replace(
            state=state,
            update_ms=now_ms,
            producer_epoch=min(known.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=known.producer_epoch,
            next_producer_id=next_producer_id if known.is_exhausted else NO_PRODUCER_ID,
        ),
    )
