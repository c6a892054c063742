"""The tables of a transactional producer: its states, and what each error means at each step."""

from itertools import product

import pytest

from pyspark_klog.client.transactions.outcomes import Outcome, Step, outcome
from pyspark_klog.client.transactions.states import (
    TABLE,
    TransactionalProducerState,
    TransactionEvent,
    after,
)
from pyspark_klog.errors import ErrorCode

_WITHOUT = {
    TransactionalProducerState.UNINITIALIZED: {TransactionEvent.INITIALIZE},
    TransactionalProducerState.INITIALIZING: {TransactionEvent.INITIALIZE, TransactionEvent.DONE},
    TransactionalProducerState.READY: {TransactionEvent.INITIALIZE, TransactionEvent.BEGIN},
    TransactionalProducerState.IN_TRANSACTION: {
        *(
            TransactionEvent.WRITE,
            TransactionEvent.COMMIT,
            TransactionEvent.ABORT,
            TransactionEvent.HAND_OVER,
            TransactionEvent.FAIL,
        ),
    },
    TransactionalProducerState.COMMITTING: {
        TransactionEvent.COMMIT,
        TransactionEvent.DONE,
        TransactionEvent.FAIL,
    },
    TransactionalProducerState.ABORTING: {TransactionEvent.ABORT, TransactionEvent.DONE},
    TransactionalProducerState.MUST_ABORT: {TransactionEvent.ABORT, TransactionEvent.FAIL},
    TransactionalProducerState.UNUSABLE: {TransactionEvent.FAIL},
}
"""The events that each state allows, besides an error after which the producer is unusable."""


def test_every_state_has_a_row() -> None:
    assert set(TABLE) == set(TransactionalProducerState)


@pytest.mark.parametrize(
    ("state", "event"), list(product(TransactionalProducerState, TransactionEvent))
)
def test_what_may_happen(state: TransactionalProducerState, event: TransactionEvent) -> None:
    following = after(state, event)
    if event is TransactionEvent.BREAK:
        assert following is TransactionalProducerState.UNUSABLE
    else:
        assert (following is not None) == (event in _WITHOUT[state])


@pytest.mark.parametrize(
    "state",
    [
        each
        for each in TransactionalProducerState
        if each is not TransactionalProducerState.UNUSABLE
    ],
)
def test_every_state_is_reached_and_left_for_the_next_transaction(
    state: TransactionalProducerState,
) -> None:
    assert state in _reachable(TransactionalProducerState.UNINITIALIZED)
    assert TransactionalProducerState.READY in _reachable(state)


def test_what_failed_is_never_committed() -> None:
    without_abort = _reachable(
        TransactionalProducerState.MUST_ABORT, left_out=TransactionEvent.ABORT
    )
    assert without_abort == {TransactionalProducerState.MUST_ABORT}
    assert (
        TransactionalProducerState.COMMITTING
        not in TABLE[TransactionalProducerState.ABORTING].values()
    )
    # Once a commit was sent it may have happened: only a refusal by the coordinator leads back.
    assert TransactionEvent.ABORT not in TABLE[TransactionalProducerState.COMMITTING]


def _reachable(
    state: TransactionalProducerState, left_out: TransactionEvent | None = None
) -> set[TransactionalProducerState]:
    found = {state}
    while True:
        more = {to for at in found for event, to in TABLE[at].items() if event is not left_out}
        if more <= found:
            return found
        found |= more


_C = ErrorCode
_FENCED = {_C.PRODUCER_FENCED, _C.INVALID_PRODUCER_EPOCH}
_MOVED = {_C.COORDINATOR_NOT_AVAILABLE, _C.NOT_COORDINATOR}
_EXPECTED: dict[Step, dict[Outcome, set[ErrorCode]]] = {
    Step.FIND_COORDINATOR: {
        Outcome.FENCED: _FENCED,
        Outcome.ABORT: {
            *(_C.GROUP_AUTHORIZATION_FAILED, _C.TRANSACTION_ABORTABLE, _C.UNKNOWN_PRODUCER_ID),
        },
    },
    Step.INITIALIZE: {Outcome.FENCED: _FENCED, Outcome.FIND: _MOVED},
    Step.ADD_PARTITIONS: {
        Outcome.FENCED: _FENCED,
        Outcome.FIND: _MOVED,
        Outcome.FATAL: {
            *(_C.INVALID_TXN_STATE, _C.INVALID_PRODUCER_ID_MAPPING, _C.UNSUPPORTED_VERSION),
            *(_C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _C.CLUSTER_AUTHORIZATION_FAILED),
            _C.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        },
    },
    Step.ADD_OFFSETS: {
        Outcome.FENCED: _FENCED,
        Outcome.FIND: _MOVED,
        Outcome.ABORT: {
            *(_C.GROUP_AUTHORIZATION_FAILED, _C.TRANSACTION_ABORTABLE, _C.UNKNOWN_PRODUCER_ID),
        },
    },
    Step.COMMIT_OFFSETS: {
        Outcome.FENCED: _FENCED,
        Outcome.FIND: {*_MOVED, _C.REQUEST_TIMED_OUT},
        Outcome.FATAL: {
            *(_C.INVALID_TXN_STATE, _C.INVALID_PRODUCER_ID_MAPPING, _C.UNSUPPORTED_VERSION),
            *(_C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _C.CLUSTER_AUTHORIZATION_FAILED),
            _C.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        },
    },
    Step.PRODUCE: {
        Outcome.FENCED: {_C.PRODUCER_FENCED},
        Outcome.FATAL: {
            *(_C.INVALID_PRODUCER_ID_MAPPING, _C.UNSUPPORTED_VERSION),
            *(_C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _C.CLUSTER_AUTHORIZATION_FAILED),
        },
    },
    Step.COMMIT: {
        Outcome.FENCED: _FENCED,
        Outcome.FIND: _MOVED,
        Outcome.ABORT: {_C.TRANSACTION_ABORTABLE, _C.UNKNOWN_PRODUCER_ID},
    },
    Step.ABORT: {Outcome.FENCED: _FENCED, Outcome.FIND: _MOVED},
}
"""The outcomes that Kafka 4.3's TransactionManager names at each step. Codes that are absent here
are retried if they are retriable (not those of a batch, which was retried before); all other
absent codes have the outcome in `_ELSE`."""
_ELSE = {
    Step.ADD_PARTITIONS: Outcome.ABORT,
    Step.COMMIT_OFFSETS: Outcome.ABORT,
    Step.PRODUCE: Outcome.ABORT,
}


@pytest.mark.parametrize("step", list(Step))
def test_every_error_at_every_step(step: Step) -> None:
    named = {code: found for found, codes in _EXPECTED[step].items() for code in codes}
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            expected = Outcome.DONE
        elif code in named:
            expected = named[code]
        elif code.retriable and step is not Step.PRODUCE:
            expected = Outcome.RETRY
        else:
            expected = _ELSE.get(step, Outcome.FATAL)
        assert outcome(step, code) is expected, code.name
