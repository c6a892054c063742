"""Decides the next state of a transactional id. Pure: time and producer ids are arguments.

The decisions follow Kafka 4.3.1's TransactionCoordinator and TransactionMetadata (KIP-98; KIP-360:
a producer may raise its own epoch; KIP-890, part 2: every end raises it). klog is stricter in two
points. A transaction keeps the transaction.version that it began with when a client of another
version adds partitions, or a client of a newer version ends it. An InitProducerId that names an old
epoch never aborts a transaction. end_decisions.py has EndTxn.
"""

from collections.abc import Iterable
from typing import NamedTuple

from klog_broker.coordinator.transaction.states import (
    ENDED,
    ENDING,
    REQUEST_ERRORS,
    TransactionRequest,
    check_transition,
)
from klog_broker.coordinator.transaction.transaction_metadata import (
    MAX_EPOCH,
    NO_TIME_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
    is_exhausted,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from pyspark_klog.state_records.transaction_log import TransactionState

_NONE = ErrorCode.NONE
_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_ABORT = TransactionState.PREPARE_ABORT
_INIT, _ADD = REQUEST_ERRORS[TransactionRequest.INIT], REQUEST_ERRORS[TransactionRequest.ADD]
_UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_FENCED = ErrorCode.PRODUCER_FENCED


class TransactionDecision(NamedTuple):
    """The decision on a request: the response's error, and the record to write before the response.

    The record (``becomes``) is None if the state does not change.
    """

    error: ErrorCode
    becomes: TransactionMetadata | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    """The producer's id and epoch from now on, for responses to InitProducerId and EndTxn."""


def checked_transition(
    known: TransactionMetadata, becomes: TransactionMetadata
) -> TransactionMetadata:
    """Return the new state ``becomes`` of a transactional id, with the producer id of its present
    state ``known`` as previous producer id.

    Raises InvariantViolation unless states.TRANSITIONS allows the change of the state.
    """
    check_transition(known.state, becomes.state)
    if becomes.previous_producer_id == known.producer_id:
        return becomes
    return becomes._replace(previous_producer_id=known.producer_id)


# --- InitProducerId -------------------------------------------------------------------------------
def needs_producer_id(
    known: TransactionMetadata | None, expected: ProducerIdAndEpoch | None
) -> bool:
    """Whether :func:`initialize` must get a new producer id: for a new transactional id, or because
    the epoch has to rise and the epochs of the present producer id are exhausted."""
    if known is None:
        return True
    is_raised = known.state in ENDED and _is_current(known, expected)
    is_fenced = known.state is _ONGOING and known.raises_epoch
    return known.is_exhausted and (is_raised or is_fenced)


def initialize(
    known: TransactionMetadata | None,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int = NO_PRODUCER_ID,
) -> TransactionDecision:
    """Decide on InitProducerId: the sender gets the transactional id, older producers are fenced.

    With ``expected``, the sender is the producer that uses the transactional id already, and asks
    for a higher epoch (KIP-360).
    """
    if known is None:
        return _with_producer(
            TransactionMetadata(
                _EMPTY,
                new_producer_id,
                0,
                timeout_ms,
                previous_producer_id=new_producer_id,
                update_ms=now_ms,
            )
        )
    if expected is not None and not _names_producer_id(known, expected):
        return TransactionDecision(_FENCED)
    if known.state in ENDING:
        return TransactionDecision(_INIT[known.state])
    if known.state is _ONGOING:
        if expected is not None and expected.producer_epoch != known.producer_epoch:
            return TransactionDecision(_FENCED)
        return TransactionDecision(_INIT[_ONGOING], aborted(known, now_ms, new_producer_id))
    if expected is not None and not _is_current(known, expected):
        return TransactionDecision(_FENCED)
    begun = known._replace(
        state=_EMPTY,
        timeout_ms=timeout_ms,
        partitions=(),
        start_ms=NO_TIME_MS,
        update_ms=now_ms,
    )
    if known.is_exhausted:
        begun = begun._replace(producer_id=new_producer_id, producer_epoch=0)
    elif expected is None or expected.producer_epoch == known.producer_epoch:
        begun = begun._replace(producer_epoch=known.producer_epoch + 1)
    else:
        # A repeated request, whose first response was lost: return the raised epoch again.
        return _with_producer(checked_transition(known, begun))
    last_epoch = NO_PRODUCER_EPOCH if expected is None else known.producer_epoch
    return _with_producer(checked_transition(known, begun._replace(last_producer_epoch=last_epoch)))


def _with_producer(becomes: TransactionMetadata) -> TransactionDecision:
    return TransactionDecision(_NONE, becomes, becomes.producer_id, becomes.producer_epoch)


def _names_producer_id(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the request names the current producer id.

    The previous producer id counts, too, if the request names its last epoch: it was replaced
    because its epochs were exhausted.
    """
    if expected.producer_id == known.producer_id:
        return True
    was_exhausted = is_exhausted(expected.producer_epoch)
    return was_exhausted and expected.producer_id == known.previous_producer_id


def _is_current(known: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether the request names the current epoch, or the epoch before the last increase.

    True without ``expected``. False usually means that another producer has used the transactional
    id since the sender got its epoch.
    """
    if expected is None or expected.producer_epoch == known.producer_epoch:
        return True
    last_epoch = known.last_producer_epoch
    return last_epoch != NO_PRODUCER_EPOCH and expected.producer_epoch == last_epoch


# --- adding partitions to a transaction, and verifying them ---------------------------------------
def check_producer(known: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> ErrorCode:
    """Return NONE if ``producer`` is the current producer id and epoch of the transactional id,
    else the error."""
    if known is None or known.producer_id != producer.producer_id:
        return _UNKNOWN
    return _NONE if known.producer_epoch == producer.producer_epoch else _FENCED


def add_partitions(
    known: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionDecision:
    """Decide on AddPartitionsToTxn: the first partition begins the transaction."""
    error = check_producer(known, producer)
    if known is None or error is not _NONE:
        return TransactionDecision(error)
    error = _ADD[known.state]
    if error is not _NONE:
        return TransactionDecision(error)
    is_open = known.state is _ONGOING
    added = dict.fromkeys((*(known.partitions if is_open else ()), *partitions))
    if is_open and len(added) == len(known.partitions):
        return TransactionDecision(_NONE)
    return TransactionDecision(
        _NONE,
        checked_transition(
            known,
            known._replace(
                state=_ONGOING,
                partitions=tuple(added),
                start_ms=known.start_ms if is_open else now_ms,
                update_ms=now_ms,
                client_version=known.client_version if is_open else client_version,
            ),
        ),
    )


def verify(
    known: TransactionMetadata | None,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
) -> ErrorCode | dict[TopicPartition, ErrorCode]:
    """Return for each partition whether the producer's transaction includes it (KIP-890, part 1).

    Returns one error instead if the transaction itself cannot be verified.
    """
    error = check_producer(known, producer)
    if known is None or error is not _NONE:
        return error
    error = _ADD[known.state]
    if error is not _NONE:
        return error
    taking_part = frozenset(known.partitions)
    absent = ErrorCode.TRANSACTION_ABORTABLE
    return {each: _NONE if each in taking_part else absent for each in partitions}


# --- aborting and completing a transaction, expiry of a transactional id --------------------------
def aborted(
    known: TransactionMetadata, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
) -> TransactionMetadata:
    """Abort an open transaction and fence its producer by raising the epoch.

    The fenced producer may continue if it sends an InitProducerId that names its old epoch before
    another producer sends one. If its epochs are exhausted and its client raises epochs, the
    producer continues with ``next_producer_id``.
    """
    changes_id = known.raises_epoch and known.is_exhausted
    return checked_transition(
        known,
        known._replace(
            state=_PREPARE_ABORT,
            producer_epoch=min(known.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=known.producer_epoch,
            next_producer_id=next_producer_id if changes_id else NO_PRODUCER_ID,
            update_ms=now_ms,
        ),
    )


def completed(known: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Complete a transaction after all its partitions have got their markers."""
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    becomes = known._replace(
        state=state, next_producer_id=NO_PRODUCER_ID, partitions=(), update_ms=now_ms
    )
    if known.next_producer_id != NO_PRODUCER_ID:
        becomes = becomes._replace(producer_id=known.next_producer_id, producer_epoch=0)
    return checked_transition(known, becomes)


def is_expired(known: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """Whether the transactional id's state is unchanged for ``expiration_ms``, and no transaction
    is open or being ended."""
    return known.state in ENDED and known.update_ms <= now_ms - expiration_ms
