"""The states of a transactional producer, and the events that each allows. Pure.

The states are those of Kafka's TransactionManager, without those for two-phase commit. When a call
raises TimedOut, the state stays as it is: the same call may be made again and goes on where the
first one stopped.
"""

from enum import Enum


class TransactionalProducerState(Enum):
    """The state of a producer and its transaction."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "without a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    MUST_ABORT = "in a transaction that must be aborted"
    UNUSABLE = "unusable"


class TransactionEvent(Enum):
    """The events that change a producer's state. The first six are calls of the producer's user,
    the last three are results of requests."""

    INITIALIZE = "init_transactions"
    BEGIN = "begin_transaction"
    WRITE = "writing"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    HAND_OVER = "hand_over"
    DONE = "done"
    FAIL = "an error after which only an abort helps"
    BREAK = "an error after which nothing helps"


_S = TransactionalProducerState
_E = TransactionEvent

TABLE: dict[TransactionalProducerState, dict[TransactionEvent, TransactionalProducerState]] = {
    _S.UNINITIALIZED: {_E.INITIALIZE: _S.INITIALIZING},
    # INITIALIZING allows INITIALIZE, because a call that timed out may be repeated. READY allows
    # INITIALIZE, because the first transaction with transaction.version 2 needs a new epoch.
    _S.INITIALIZING: {_E.INITIALIZE: _S.INITIALIZING, _E.DONE: _S.READY},
    _S.READY: {_E.BEGIN: _S.IN_TRANSACTION, _E.INITIALIZE: _S.INITIALIZING},
    _S.IN_TRANSACTION: {
        _E.WRITE: _S.IN_TRANSACTION,
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.HAND_OVER: _S.UNINITIALIZED,
        _E.FAIL: _S.MUST_ABORT,
    },
    _S.COMMITTING: {_E.COMMIT: _S.COMMITTING, _E.DONE: _S.READY, _E.FAIL: _S.MUST_ABORT},
    _S.ABORTING: {_E.ABORT: _S.ABORTING, _E.DONE: _S.READY},
    _S.MUST_ABORT: {_E.ABORT: _S.ABORTING, _E.FAIL: _S.MUST_ABORT},
    _S.UNUSABLE: {_E.FAIL: _S.UNUSABLE},
}
"""By state and event: the next state. A state refuses the events that its row lacks. BREAK, an
error that even an abort cannot cure, is in no row: it leads to UNUSABLE from every state."""


def after(
    state: TransactionalProducerState, event: TransactionEvent
) -> TransactionalProducerState | None:
    """The next state; None if the event is refused."""
    if event is TransactionEvent.BREAK:
        return TransactionalProducerState.UNUSABLE
    return TABLE[state].get(event)
