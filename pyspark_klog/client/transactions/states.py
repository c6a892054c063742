"""The states of a transactional producer, and what may happen in each. Pure.

They are those of Kafka's TransactionManager, without its states for two-phase commit. A time-out
changes no state: the same call may be made again and goes on where the first one stopped.
"""

from enum import Enum


class State(Enum):
    """Where a producer stands."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "without a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    MUST_ABORT = "in a transaction that must be aborted"
    UNUSABLE = "unusable"


class Event(Enum):
    """What happens: calls of the user, then what answers mean."""

    INITIALIZE = "init_transactions"
    BEGIN = "begin_transaction"
    WRITE = "writing"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    HAND_OVER = "hand_over"
    DONE = "done"
    FAIL = "an error after which only an abort helps"
    BREAK = "an error after which nothing helps"


_S = State
_E = Event

TABLE: dict[State, dict[Event, State]] = {
    _S.UNINITIALIZED: {_E.INITIALIZE: _S.INITIALIZING},
    # The first INITIALIZE timed out; before the first transaction of another transaction.version
    # the identity is asked for again.
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
"""The state after an event; an event that a state's row lacks is refused there. BREAK leads
everywhere to UNUSABLE."""


def after(state: State, event: Event) -> State | None:
    """The next state; None if the event is refused."""
    if event is Event.BREAK:
        return State.UNUSABLE
    return TABLE[state].get(event)
