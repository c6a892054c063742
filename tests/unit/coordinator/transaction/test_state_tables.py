"""Every answer of a transaction, state by state, against the table that is printed."""

from itertools import product

import pytest

from klog_broker.coordinator.transaction.decisions import (
    TransactionDecision,
    aborted,
    add_partitions,
    completed,
    initialize,
    is_expired,
    needs_producer_id,
    verify,
)
from klog_broker.coordinator.transaction.end_decisions import decide_end, end_needs_producer_id
from klog_broker.coordinator.transaction.states import (
    ENDED,
    ENDING,
    LASTING,
    REMARKS,
    REQUEST_ERRORS,
    TRANSITIONS,
    TransactionRequest,
    check_transition,
)
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_PLAIN,
    VERSION_RAISING,
    ProducerIdAndEpoch,
    TransactionMetadata,
    UnusableRecord,
    from_record,
)
from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.transaction_log import TransactionState
from tests.support.coordinator.transaction_records import to_record

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
UNKNOWN, CONCURRENT = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.CONCURRENT_TRANSACTIONS
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ID, EPOCH, TIMEOUT_MS = 7, 5, 60_000
LAST_USABLE = 32_766
NOW_MS = 1_000_000
NEW_ID = 99
STATES = sorted(LASTING)


def known(
    state: TransactionState, epoch: int = EPOCH, version: int = VERSION_RAISING
) -> TransactionMetadata:
    is_open = state is TransactionState.ONGOING or state in ENDING
    return TransactionMetadata(
        state=state,
        producer_id=ID,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        previous_producer_id=ID,
        last_producer_epoch=epoch - 1 if state is not TransactionState.ONGOING else -1,
        partitions=(A,) if is_open else (),
        start_ms=NOW_MS - 10 if state is not TransactionState.EMPTY else -1,
        update_ms=NOW_MS - 10,
        client_version=version,
    )


def who(epoch: int = EPOCH, producer_id: int = ID) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id, epoch)


def decide_request(asked: TransactionRequest, now: TransactionMetadata) -> TransactionDecision:
    match asked:
        case TransactionRequest.INIT:
            return initialize(now, None, TIMEOUT_MS, NOW_MS)
        case TransactionRequest.ADD:
            return add_partitions(now, who(), [B], VERSION_RAISING, NOW_MS)
        case TransactionRequest.COMMIT | TransactionRequest.ABORT:
            is_commit = asked is TransactionRequest.COMMIT
            return decide_end(now, who(), VERSION_PLAIN, NOW_MS, is_commit=is_commit)
        case TransactionRequest.COMMIT_RAISING | TransactionRequest.ABORT_RAISING:
            is_commit = asked is TransactionRequest.COMMIT_RAISING
            return decide_end(now, who(), VERSION_RAISING, NOW_MS, is_commit=is_commit)
        case TransactionRequest.COMMIT_AGAIN | TransactionRequest.ABORT_AGAIN:
            is_commit = asked is TransactionRequest.COMMIT_AGAIN
            return decide_end(now, who(EPOCH - 1), VERSION_RAISING, NOW_MS, is_commit=is_commit)


CHANGES = {
    (TransactionRequest.INIT, TransactionState.EMPTY): TransactionState.EMPTY,
    (TransactionRequest.INIT, TransactionState.ONGOING): TransactionState.PREPARE_ABORT,
    (TransactionRequest.INIT, TransactionState.COMPLETE_COMMIT): TransactionState.EMPTY,
    (TransactionRequest.INIT, TransactionState.COMPLETE_ABORT): TransactionState.EMPTY,
    (TransactionRequest.ADD, TransactionState.EMPTY): TransactionState.ONGOING,
    (TransactionRequest.ADD, TransactionState.ONGOING): TransactionState.ONGOING,
    (TransactionRequest.ADD, TransactionState.COMPLETE_COMMIT): TransactionState.ONGOING,
    (TransactionRequest.ADD, TransactionState.COMPLETE_ABORT): TransactionState.ONGOING,
    (TransactionRequest.COMMIT, TransactionState.ONGOING): TransactionState.PREPARE_COMMIT,
    (TransactionRequest.ABORT, TransactionState.ONGOING): TransactionState.PREPARE_ABORT,
    (TransactionRequest.COMMIT_RAISING, TransactionState.ONGOING): TransactionState.PREPARE_COMMIT,
    (TransactionRequest.ABORT_RAISING, TransactionState.ONGOING): TransactionState.PREPARE_ABORT,
    (TransactionRequest.ABORT_RAISING, TransactionState.EMPTY): TransactionState.PREPARE_ABORT,
    (
        TransactionRequest.ABORT_RAISING,
        TransactionState.COMPLETE_COMMIT,
    ): TransactionState.PREPARE_ABORT,
    (
        TransactionRequest.ABORT_RAISING,
        TransactionState.COMPLETE_ABORT,
    ): TransactionState.PREPARE_ABORT,
}
"""All events that change a state; other requests change nothing."""


@pytest.mark.parametrize(("asked", "state"), list(product(TransactionRequest, STATES)))
def test_each_state_answers_what_the_table_says(
    asked: TransactionRequest, state: TransactionState
) -> None:
    decision = decide_request(asked, known(state))
    assert decision.error is REQUEST_ERRORS[asked][state]
    becomes = CHANGES.get((asked, state))
    assert (decision.becomes and decision.becomes.state) == becomes
    if becomes is not None:
        assert becomes in TRANSITIONS[state]


@pytest.mark.parametrize("state", STATES)
def test_another_epoch_or_producer_id_changes_nothing(state: TransactionState) -> None:
    now = known(state)._replace(last_producer_epoch=-1)
    for producer, error in (
        (who(EPOCH - 2), FENCED),
        (who(EPOCH + 1), FENCED),
        (who(producer_id=8), UNKNOWN),
    ):
        added = add_partitions(now, producer, [B], VERSION_RAISING, NOW_MS)
        assert added == TransactionDecision(error)
        assert verify(now, producer, [A]) is error
        for version, is_commit in product((VERSION_PLAIN, VERSION_RAISING), (True, False)):
            assert decide_end(
                now, producer, version, NOW_MS, is_commit=is_commit
            ) == TransactionDecision(error)
        init = initialize(now, producer, TIMEOUT_MS, NOW_MS)
        concurrent = state in ENDING and error is FENCED
        assert init == TransactionDecision(CONCURRENT if concurrent else FENCED)


def test_an_unknown_id_has_no_producer() -> None:
    assert add_partitions(None, who(), [A], VERSION_PLAIN, NOW_MS).error is UNKNOWN
    assert verify(None, who(), [A]) is UNKNOWN
    for version in (VERSION_PLAIN, VERSION_RAISING):
        assert decide_end(None, who(), version, NOW_MS, is_commit=True).error is UNKNOWN
    assert needs_producer_id(None, None)
    made = initialize(None, who(), TIMEOUT_MS, NOW_MS, NEW_ID)
    assert made[0] is NONE
    assert made[2:] == (NEW_ID, 0)


def test_transitions_are_those_of_kafka_without_the_fence() -> None:
    """Kafka's TransactionState declares the same transitions in VALID_PREVIOUS_STATES."""
    empty, ongoing = TransactionState.EMPTY, TransactionState.ONGOING
    commit, abort = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
    previous = {
        empty: {empty, commit, abort},
        ongoing: {ongoing, empty, commit, abort},
        TransactionState.PREPARE_COMMIT: {ongoing},
        TransactionState.PREPARE_ABORT: {ongoing, empty, commit, abort},
        commit: {TransactionState.PREPARE_COMMIT},
        abort: {TransactionState.PREPARE_ABORT},
        TransactionState.DEAD: {empty, commit, abort},
        TransactionState.PREPARE_EPOCH_FENCE: set(),
    }
    for before, after in product(TransactionState, TransactionState):
        assert (after in TRANSITIONS[before]) == (before in previous[after])
        if before not in previous[after]:
            with pytest.raises(InvariantViolation, match="cannot go from"):
                check_transition(before, after)


# --- epochs ---------------------------------------------------------------------------------------
def test_a_producer_that_names_its_epoch_gets_the_next_one_and_may_ask_again() -> None:
    first = initialize(known(TransactionState.COMPLETE_COMMIT), who(), TIMEOUT_MS, NOW_MS)
    assert first[2:] == (ID, EPOCH + 1)
    again = initialize(first.becomes, who(), TIMEOUT_MS, NOW_MS)
    assert again[2:] == (ID, EPOCH + 1)
    fenced = initialize(again.becomes, None, TIMEOUT_MS, NOW_MS)
    assert fenced[2:] == (ID, EPOCH + 2)
    assert initialize(fenced.becomes, who(), TIMEOUT_MS, NOW_MS) == TransactionDecision(FENCED)


def test_used_up_epochs_lead_to_a_new_producer_id() -> None:
    now = known(TransactionState.COMPLETE_COMMIT, LAST_USABLE)
    assert needs_producer_id(now, None)
    assert needs_producer_id(now, who(LAST_USABLE))
    assert not needs_producer_id(now, who(3))
    other = initialize(now, None, TIMEOUT_MS, NOW_MS, NEW_ID)
    assert other[2:] == (NEW_ID, 0)
    assert initialize(other.becomes, who(LAST_USABLE), TIMEOUT_MS, NOW_MS).error is FENCED
    same = initialize(now, who(LAST_USABLE), TIMEOUT_MS, NOW_MS, NEW_ID)
    assert same[2:] == (NEW_ID, 0)
    assert initialize(same.becomes, who(LAST_USABLE), TIMEOUT_MS, NOW_MS)[2:] == (NEW_ID, 0)


def test_the_epoch_before_the_last_is_not_handed_out_for_a_used_up_one() -> None:
    now = known(TransactionState.EMPTY, LAST_USABLE)
    assert needs_producer_id(now, who(LAST_USABLE - 1))
    assert initialize(now, who(LAST_USABLE - 1), TIMEOUT_MS, NOW_MS, NEW_ID)[2:] == (NEW_ID, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_of_the_newest_kind_raises_the_epoch(is_commit: bool) -> None:
    now = known(TransactionState.ONGOING)
    decision = decide_end(now, who(), VERSION_RAISING, NOW_MS, is_commit=is_commit)
    assert decision[2:] == (ID, EPOCH + 1)
    prepared = decision.becomes
    assert prepared is not None
    assert prepared.producer_epoch == EPOCH + 1
    done = completed(prepared, NOW_MS)
    for retried_on, error in ((prepared, CONCURRENT), (done, NONE)):
        again = decide_end(retried_on, who(), VERSION_RAISING, NOW_MS, is_commit=is_commit)
        assert again.error is error
        assert again.becomes is None
        other = decide_end(retried_on, who(), VERSION_RAISING, NOW_MS, is_commit=not is_commit)
        assert other == TransactionDecision(ErrorCode.INVALID_TXN_STATE)
    again = decide_end(done, who(), VERSION_RAISING, NOW_MS, is_commit=is_commit)
    assert again[2:] == (ID, EPOCH + 1)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_in_the_last_epoch_goes_on_with_another_producer_id(is_commit: bool) -> None:
    now = known(TransactionState.ONGOING, LAST_USABLE)
    assert end_needs_producer_id(now, VERSION_RAISING)
    assert not end_needs_producer_id(now, VERSION_PLAIN)
    decision = decide_end(
        now,
        who(LAST_USABLE),
        VERSION_RAISING,
        NOW_MS,
        is_commit=is_commit,
        next_producer_id=NEW_ID,
    )
    assert decision[2:] == (NEW_ID, 0)
    prepared = decision.becomes
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (ID, LAST_USABLE + 1)
    # A process that is lost here has all that it needs in its record.
    prepared = from_record(to_record(prepared))
    done = completed(prepared, NOW_MS)
    assert (done.producer_id, done.producer_epoch) == (NEW_ID, 0)
    reloaded = from_record(to_record(done))
    again = decide_end(reloaded, who(LAST_USABLE), VERSION_RAISING, NOW_MS, is_commit=is_commit)
    assert again == (NONE, None, NEW_ID, 0)


def test_a_plain_end_keeps_the_epoch() -> None:
    now = known(TransactionState.ONGOING, version=VERSION_PLAIN)
    decision = decide_end(now, who(), VERSION_PLAIN, NOW_MS, is_commit=True)
    assert decision.becomes is not None
    assert decision.becomes.producer_epoch == EPOCH
    done = completed(decision.becomes, NOW_MS)
    assert decide_end(done, who(), VERSION_PLAIN, NOW_MS, is_commit=True) == TransactionDecision(
        NONE
    )
    begun = add_partitions(done, who(), [A], VERSION_PLAIN, NOW_MS)
    assert begun.error is NONE


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_fenced_producer_is_not_taken_for_a_repeated_one(is_commit: bool) -> None:
    """The successor's transactions end in the epoch in which they began."""
    fenced = who()
    successor = initialize(known(TransactionState.EMPTY), None, TIMEOUT_MS, NOW_MS)
    assert successor[2:] == (ID, EPOCH + 1)
    begun = add_partitions(successor.becomes, who(EPOCH + 1), [A], VERSION_PLAIN, NOW_MS).becomes
    ended = decide_end(begun, who(EPOCH + 1), VERSION_PLAIN, NOW_MS, is_commit=is_commit).becomes
    assert ended is not None
    for now in (ended, completed(ended, NOW_MS)):
        late = decide_end(now, fenced, VERSION_RAISING, NOW_MS, is_commit=is_commit)
        assert late == TransactionDecision(FENCED)


def test_the_version_of_the_begin_holds_until_the_end() -> None:
    begun = add_partitions(
        known(TransactionState.COMPLETE_ABORT), who(), [A], VERSION_PLAIN, NOW_MS
    ).becomes
    more = add_partitions(begun, who(), [B], VERSION_RAISING, NOW_MS + 5).becomes
    assert more is not None
    assert (more.client_version, more.start_ms) == (VERSION_PLAIN, NOW_MS)
    assert more.partitions == (A, B)
    ended = decide_end(more, who(), VERSION_RAISING, NOW_MS, is_commit=True)
    assert ended[2:] == (ID, EPOCH)
    assert ended.becomes is not None
    assert ended.becomes.client_version == VERSION_PLAIN
    assert not end_needs_producer_id(more._replace(producer_epoch=LAST_USABLE), VERSION_RAISING)
    assert aborted(more, NOW_MS).client_version == VERSION_PLAIN


def test_a_client_of_an_older_version_keeps_its_epoch() -> None:
    now = known(TransactionState.ONGOING, version=VERSION_RAISING)
    ended = decide_end(now, who(), VERSION_PLAIN, NOW_MS, is_commit=True).becomes
    assert ended is not None
    assert (ended.producer_epoch, ended.client_version) == (EPOCH, VERSION_PLAIN)


# --- aborts by the coordinator --------------------------------------------------------------------
@pytest.mark.parametrize("version", [VERSION_PLAIN, VERSION_RAISING])
def test_a_fenced_producer_may_come_back_with_its_epoch_and_no_other(version: int) -> None:
    fenced = aborted(known(TransactionState.ONGOING, version=version), NOW_MS)
    assert fenced.producer_epoch == EPOCH + 1
    done = completed(fenced, NOW_MS)
    assert decide_end(done, who(), VERSION_PLAIN, NOW_MS, is_commit=False) == TransactionDecision(
        FENCED
    )
    assert add_partitions(done, who(), [A], version, NOW_MS) == TransactionDecision(FENCED)
    back = initialize(done, who(), TIMEOUT_MS, NOW_MS)
    assert back[2:] == (ID, EPOCH + 1)
    assert initialize(done, who(EPOCH - 1), TIMEOUT_MS, NOW_MS) == TransactionDecision(FENCED)


def test_a_late_init_of_an_older_epoch_aborts_nothing() -> None:
    now = known(TransactionState.ONGOING)._replace(last_producer_epoch=EPOCH - 1)
    assert initialize(now, who(EPOCH - 1), TIMEOUT_MS, NOW_MS) == TransactionDecision(FENCED)
    own = initialize(now, who(), TIMEOUT_MS, NOW_MS)
    assert own.error is CONCURRENT
    assert own.becomes is not None


def test_a_time_out_in_the_last_epoch_gives_the_next_producer_another_id() -> None:
    now = known(TransactionState.ONGOING, LAST_USABLE)
    assert needs_producer_id(now, None)
    done = completed(aborted(now, NOW_MS, NEW_ID), NOW_MS)
    assert (done.producer_id, done.producer_epoch) == (NEW_ID, 0)
    plain = known(TransactionState.ONGOING, LAST_USABLE, VERSION_PLAIN)
    assert not needs_producer_id(plain, None)
    fenced = completed(aborted(plain, NOW_MS), NOW_MS)
    assert fenced.producer_epoch == LAST_USABLE + 1
    assert needs_producer_id(fenced, who(LAST_USABLE))
    assert initialize(fenced, who(LAST_USABLE), TIMEOUT_MS, NOW_MS, NEW_ID)[2:] == (NEW_ID, 0)


def test_a_transaction_is_overdue_after_its_time_out_and_only_while_it_is_open() -> None:
    now = known(TransactionState.ONGOING)
    assert not now.is_overdue(now.start_ms + TIMEOUT_MS)
    assert now.is_overdue(now.start_ms + TIMEOUT_MS + 1)
    for state in LASTING - {TransactionState.ONGOING}:
        assert not known(state).is_overdue(now.start_ms + TIMEOUT_MS + 1)


@pytest.mark.parametrize("state", STATES)
def test_an_id_expires_unless_a_transaction_is_open_or_being_ended(
    state: TransactionState,
) -> None:
    now = known(state)
    assert not is_expired(now, now.update_ms + 99, 100)
    assert is_expired(now, now.update_ms + 100, 100) == (state in ENDED)


# --- partitions, records --------------------------------------------------------------------------
def test_a_partition_is_added_once_and_verified_then() -> None:
    now = known(TransactionState.ONGOING)
    assert add_partitions(now, who(), [A], VERSION_RAISING, NOW_MS) == TransactionDecision(NONE)
    assert verify(now, who(), [A, B]) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    for state in ENDING:
        assert verify(known(state), who(), [A]) is CONCURRENT
    for state in ENDED:
        assert verify(known(state), who(), [A]) == {A: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("state", STATES)
def test_a_record_has_all_but_the_epoch_before(state: TransactionState) -> None:
    now = known(state)._replace(next_producer_id=3)
    assert from_record(to_record(now)) == now._replace(last_producer_epoch=-1)


@pytest.mark.parametrize("number", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE, 8])
def test_a_record_with_another_state_is_refused(number: int) -> None:
    record = to_record(known(TransactionState.EMPTY))
    record.transaction_status = number
    with pytest.raises(UnusableRecord):
        from_record(record)


# --- the page -------------------------------------------------------------------------------------
def test_the_tables_name_every_state() -> None:
    told = [*STATES, TransactionState.DEAD]
    assert set(TRANSITIONS) == set(TransactionState)
    assert set(REQUEST_ERRORS) == set(TransactionRequest)
    assert all(list(row) == told for row in REQUEST_ERRORS.values())
    assert all(state in told for _, state in REMARKS)


def test_no_epoch_is_not_the_epoch_before_the_first_one() -> None:
    """A producer that names no epoch is not the one that was there before an epoch was raised."""
    begun = known(TransactionState.EMPTY)._replace(last_producer_epoch=-1)
    assert initialize(begun, who(-1), TIMEOUT_MS, NOW_MS).error is FENCED
