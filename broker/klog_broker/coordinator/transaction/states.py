"""The states of a transaction: all transitions, and the error of each request in each state.

docs/transactions.md is generated from these tables.
"""

from enum import Enum

from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.state_records.transaction_log import TransactionState

_BEGIN = "a transaction begins with its first partition, or with the offsets of a group"
_INIT = "InitProducerId: the epoch is raised, or the id gets a new producer id"
_EMPTY_ABORT = (
    "EndTxn 5 aborts, although no transaction has begun: like each EndTxn 5, it raises the producer"
    " epoch"
)
_EXPIRED = (
    "the transactional id was not used for transactional.id.expiration.ms: its tombstone is written"
)

TRANSITIONS: dict[TransactionState, dict[TransactionState, str]] = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY: _INIT,
        TransactionState.ONGOING: _BEGIN,
        TransactionState.PREPARE_ABORT: _EMPTY_ABORT,
        TransactionState.DEAD: _EXPIRED,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING: "more partitions are added",
        TransactionState.PREPARE_COMMIT: "EndTxn commits",
        TransactionState.PREPARE_ABORT: "EndTxn aborts, InitProducerId fences the producer, or the "
        "transaction timeout has passed",
    },
    TransactionState.PREPARE_COMMIT: {
        TransactionState.COMPLETE_COMMIT: "each partition has its commit marker",
    },
    TransactionState.PREPARE_ABORT: {
        TransactionState.COMPLETE_ABORT: "each partition has its abort marker",
    },
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY: _INIT,
        TransactionState.ONGOING: _BEGIN,
        TransactionState.PREPARE_ABORT: _EMPTY_ABORT,
        TransactionState.DEAD: _EXPIRED,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY: _INIT,
        TransactionState.ONGOING: _BEGIN,
        TransactionState.PREPARE_ABORT: _EMPTY_ABORT,
        TransactionState.DEAD: _EXPIRED,
    },
    TransactionState.DEAD: {},
    TransactionState.PREPARE_EPOCH_FENCE: {},
}
"""PREPARE_EPOCH_FENCE is Kafka's name for the time between the decision to fence a producer and the
record of the decision. klog decides and writes in one step, so no transaction is ever in this
state. A transactional id is in state DEAD if the log has no record of it, or a tombstone as the
newest one."""

LASTING = frozenset(state for state, steps in TRANSITIONS.items() if steps)
"""The states that a record of ``__transaction_state`` may have."""
ENDED = frozenset(
    (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
)
"""The states in which no transaction is open or being ended: a new transaction may begin, and the
transactional id may expire."""
ENDING = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""The states in which the transaction's result (commit or abort) is decided, and its markers are
being written."""


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """Raise InvariantViolation for a transition that is not in TRANSITIONS."""
    if after not in TRANSITIONS[before]:
        raise InvariantViolation(
            f"a transaction cannot go from {before.kafkas_name} to {after.kafkas_name}"
        )


class TransactionRequest(Enum):
    """The requests to a transaction that REQUEST_ERRORS distinguishes.

    COMMIT_AGAIN and ABORT_AGAIN repeat the last EndTxn, with the epoch from before that EndTxn.
    """

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn, AddOffsetsToTxn"
    COMMIT = "EndTxn 0-4, commit"
    ABORT = "EndTxn 0-4, abort"
    COMMIT_RAISING = "EndTxn 5, commit"
    ABORT_RAISING = "EndTxn 5, abort"
    COMMIT_AGAIN = "EndTxn 5, commit, repeated with the previous epoch"
    ABORT_AGAIN = "EndTxn 5, abort, repeated with the previous epoch"


_NONE, _CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID, _FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
_NOT_FOUND = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _by_state(
    empty: ErrorCode,
    ongoing: ErrorCode,
    prepare_commit: ErrorCode,
    prepare_abort: ErrorCode,
    complete_commit: ErrorCode,
    complete_abort: ErrorCode,
    dead: ErrorCode = _NOT_FOUND,
) -> dict[TransactionState, ErrorCode]:
    return {
        TransactionState.EMPTY: empty,
        TransactionState.ONGOING: ongoing,
        TransactionState.PREPARE_COMMIT: prepare_commit,
        TransactionState.PREPARE_ABORT: prepare_abort,
        TransactionState.COMPLETE_COMMIT: complete_commit,
        TransactionState.COMPLETE_ABORT: complete_abort,
        TransactionState.DEAD: dead,
    }


REQUEST_ERRORS: dict[TransactionRequest, dict[TransactionState, ErrorCode]] = {
    TransactionRequest.INIT: _by_state(
        _NONE, _CONCURRENT, _CONCURRENT, _CONCURRENT, _NONE, _NONE, dead=_NONE
    ),
    TransactionRequest.ADD: _by_state(_NONE, _NONE, _CONCURRENT, _CONCURRENT, _NONE, _NONE),
    TransactionRequest.COMMIT: _by_state(_INVALID, _NONE, _CONCURRENT, _INVALID, _NONE, _INVALID),
    TransactionRequest.ABORT: _by_state(_INVALID, _NONE, _INVALID, _CONCURRENT, _INVALID, _NONE),
    TransactionRequest.COMMIT_RAISING: _by_state(
        _INVALID, _NONE, _FENCED, _FENCED, _INVALID, _INVALID
    ),
    TransactionRequest.ABORT_RAISING: _by_state(_NONE, _NONE, _FENCED, _FENCED, _NONE, _NONE),
    TransactionRequest.COMMIT_AGAIN: _by_state(
        _FENCED, _FENCED, _CONCURRENT, _INVALID, _NONE, _INVALID
    ),
    TransactionRequest.ABORT_AGAIN: _by_state(
        _FENCED, _FENCED, _INVALID, _CONCURRENT, _INVALID, _NONE
    ),
}
"""The error of each request in each state; NONE means that the request is carried out, or was
already. A transactional id without a record is in state DEAD: InitProducerId creates it, and all
other requests get an error."""

REMARKS: dict[tuple[TransactionRequest, TransactionState], str] = {
    (
        TransactionRequest.INIT,
        TransactionState.ONGOING,
    ): "aborts the transaction; done if the abort completes at once, else CONCURRENT_TRANSACTIONS",
    (TransactionRequest.INIT, TransactionState.DEAD): "done, with a new producer id",
    (TransactionRequest.COMMIT, TransactionState.COMPLETE_COMMIT): "was done before",
    (TransactionRequest.ABORT, TransactionState.COMPLETE_ABORT): "was done before",
    (
        TransactionRequest.COMMIT_AGAIN,
        TransactionState.COMPLETE_COMMIT,
    ): "was done before: the same response",
    (
        TransactionRequest.ABORT_AGAIN,
        TransactionState.COMPLETE_ABORT,
    ): "was done before: the same response",
}
"""Texts that docs/transactions.md prints instead of the error of a request in a state."""
