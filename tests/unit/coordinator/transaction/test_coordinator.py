"""The transaction coordinator: its records, markers and responses, and their order."""

import logging

import pytest

from klog_broker.coordinator.transaction.coordinator import TRANSACTION_STATE
from klog_broker.coordinator.transaction.sweeps import TOMBSTONES_AT_ONCE
from klog_broker.coordinator.transaction.transaction_machine import TransactionResult
from klog_broker.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import Offset
from pyspark_klog.records.builder import plain_batch
from pyspark_klog.state_records.transaction_log import TransactionState, encode_key
from tests.support.cluster.state_log import MemoryStateLog
from tests.support.cluster.transactions import (
    EXPIRATION_MS,
    EXPIRY_SWEEP_MS,
    NONE,
    SWEEP_MS,
    TIMEOUT_MS,
    A,
    B,
    Partitions,
    Sim,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
COMMITTED = ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


def test_a_commit_is_written_then_marked_then_written_as_done() -> None:
    sim = Sim()
    producer = sim.begun(A, B)
    assert sim.end_transaction(producer) == TransactionResult(NONE, producer.producer_id, 1)
    assert sim.states() == COMMITTED
    assert sim.partitions.sent() == [(True, 1, (A, B))]
    known = sim.known()
    assert known is not None
    assert known.partitions == ()
    assert sim.add(ProducerIdAndEpoch(producer.producer_id, 1), B) is NONE


def test_a_plain_abort_keeps_the_epoch() -> None:
    sim = Sim()
    producer = sim.begun(A, version=0)
    assert sim.end_transaction(producer, is_commit=False, version=0) == TransactionResult()
    assert sim.partitions.sent() == [(False, 0, (A,))]
    assert sim.partitions.markers[0].transaction_version == 0
    assert sim.add(producer, A, version=0) is NONE


def test_no_marker_is_sent_and_nobody_answered_before_the_decision_is_visible() -> None:
    sim = Sim()
    producer = sim.begun(A)
    sim.log.follows = False
    assert sim.end_transaction(producer) is None
    assert sim.partitions.markers == []
    assert sim.add(producer, B) is None
    sim.log.high_watermark = sim.log.log_end_offset
    sim.time.services.purgatory.check(sim.log.topic_partition)
    sim.time.settle()
    codes = [each.error_code for each in sim.replies]
    assert codes == [NONE, FENCED]
    assert sim.partitions.sent() == [(True, 1, (A,))]
    assert sim.states() == COMMITTED


def test_a_decision_that_is_visible_late_is_carried_out_all_the_same() -> None:
    sim = Sim()
    producer = sim.begun(A)
    sim.log.follows = False
    sim.end_transaction(producer)
    sim.time.advance(61_000)
    reply = sim.reply()
    assert reply is not None
    assert reply.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sim.partitions.markers == []
    sim.log.follows = True
    sim.log.high_watermark = sim.log.log_end_offset
    sim.time.services.purgatory.check(sim.log.topic_partition)
    sim.time.settle()
    assert sim.states() == COMMITTED


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_marker_is_sent_until_it_is_written_and_only_where_it_is_not(code: ErrorCode) -> None:
    sim = Sim()
    sim.partitions.answers[B] = [code, code]
    producer = sim.begun(A, B)
    assert sim.end_transaction(producer) == TransactionResult(NONE, producer.producer_id, 1)
    assert sim.states() == COMMITTED[:-1]
    assert sim.add(ProducerIdAndEpoch(producer.producer_id, 1), A) is CONCURRENT
    sim.time.advance(1_000)
    assert sim.partitions.sent() == [(True, 1, (A, B)), (True, 1, (B,)), (True, 1, (B,))]
    assert sim.states() == COMMITTED


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ],
)
def test_a_deleted_or_newer_partition_does_not_delay_the_markers(code: ErrorCode) -> None:
    sim = Sim()
    sim.partitions.answers[B] = [code]
    sim.end_transaction(sim.begun(A, B))
    assert sim.states() == COMMITTED
    assert len(sim.partitions.markers) == 1


def test_the_record_of_the_end_is_written_again_until_it_is_in_the_log() -> None:
    sim = Sim()
    sim.partitions.is_silent = True
    sim.end_transaction(sim.begun(A))
    sim.log.fails = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)
    sim.partitions.unanswered.pop()()
    sim.time.advance(500)
    assert sim.states() == COMMITTED[:-1]
    sim.log.fails = None
    sim.time.advance(500)
    assert sim.states() == COMMITTED
    assert len(sim.partitions.markers) == 1


def test_what_cannot_be_written_did_not_happen() -> None:
    sim = Sim()
    producer = sim.begun(A)
    for error, told in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ):
        sim.log.fails = BrokerError(error)
        assert sim.end_transaction(producer) == TransactionResult(told)
        assert sim.add(producer, B) is told
        assert sim.init(key="other") == TransactionResult(told)
        assert sim.known("other") is None
    sim.log.fails = None
    assert sim.end_transaction(producer) == TransactionResult(NONE, producer.producer_id, 1)


def test_a_broker_that_leads_no_longer_sends_no_more_markers() -> None:
    sim = Sim()
    sim.partitions.answers[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 99
    sim.end_transaction(sim.begun(A))
    sent = len(sim.partitions.markers)
    sim.coordinator.on_resign(sim.log.topic_partition)
    sim.time.advance(10_000)
    assert len(sim.partitions.markers) == sent
    assert sim.states() == COMMITTED[:-1]
    assert sim.init() == TransactionResult(ErrorCode.NOT_COORDINATOR)


def test_late_answers_of_an_earlier_leadership_change_nothing() -> None:
    sim = Sim()
    sim.partitions.is_silent = True
    sim.end_transaction(sim.begun(A))
    late = sim.partitions.unanswered.pop()
    sim.coordinator.on_resign(sim.log.topic_partition)
    sim.coordinator.on_lead(sim.log)
    sim.time.settle()
    late()
    assert sim.states() == COMMITTED[:-1]
    sim.partitions.unanswered.pop()()
    assert sim.states() == COMMITTED


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("records", [1, 2, 3, 4])
def test_lost_anywhere_it_ends_once_and_as_decided(
    records: int, version: int, is_commit: bool
) -> None:
    first = Sim()
    producer = first.begun(A, B, version=version)
    first.end_transaction(producer, is_commit=is_commit, version=version)
    decided = first.partitions.sent()[0]
    first.partitions.markers.clear()
    sim = first.lost_after(records)
    if records in (1, 4):
        assert sim.partitions.markers == []
        again = sim.end_transaction(producer, is_commit=is_commit, version=version)
        assert again is not None
        # The newest kind of abort may end what has not begun; any other has nothing to end.
        may_end = records == 4 or (version == 2 and not is_commit)
        assert again.error_code is (NONE if may_end else ErrorCode.INVALID_TXN_STATE)
        return
    if records == 2:
        # The end was not written, so the time-out decides.
        assert sim.partitions.markers == []
        sim.time.advance(TIMEOUT_MS + SWEEP_MS + 1)
        assert [each[0] for each in sim.partitions.sent()] == [False]
    else:
        assert sim.partitions.sent() == [decided]
    state = "CompleteCommit" if is_commit and records == 3 else "CompleteAbort"
    assert sim.states()[-1] == state
    assert all(each.coordinator_epoch == 1 for each in sim.partitions.markers)
    sent = len(sim.partitions.markers)
    after = sim.lost_after(len(sim.log.batches))
    after.time.advance(2 * TIMEOUT_MS)
    assert len(sim.partitions.markers) == sent
    assert after.states()[-1] == state


def test_a_second_producer_fences_the_first() -> None:
    sim = Sim()
    first = sim.begun(A)
    assert sim.init() == TransactionResult(NONE, first.producer_id, 2)
    assert sim.partitions.sent() == [(False, 1, (A,))]
    assert sim.add(first, A) is FENCED
    for is_commit in (True, False):
        assert sim.end_transaction(first, is_commit=is_commit) == TransactionResult(FENCED)
    assert sim.init(first) == TransactionResult(FENCED)


def test_a_second_producer_asks_again_while_the_first_ones_markers_are_on_their_way() -> None:
    sim = Sim()
    first = sim.begun(A)
    sim.partitions.is_silent = True
    for _ in range(2):
        assert sim.init() == TransactionResult(CONCURRENT)
    sim.partitions.unanswered.pop()()
    assert sim.init() == TransactionResult(NONE, first.producer_id, 2)
    assert len(sim.partitions.markers) == 1


def test_a_transaction_is_aborted_after_its_time_out_and_the_sweep() -> None:
    sim = Sim()
    sim.begun(A)
    sim.time.advance(TIMEOUT_MS - 1)
    assert sim.partitions.markers == []
    sim.time.advance(SWEEP_MS + 1)
    assert sim.partitions.sent() == [(False, 1, (A,))]
    assert sim.states()[-2:] == ["PrepareAbort", "CompleteAbort"]


def test_an_abort_by_time_out_in_the_last_epoch_waits_for_a_producer_id() -> None:
    sim = Sim()
    producer = sim.begun(A)
    machine = sim.coordinator.machines()[1][0]
    assert machine.metadata is not None
    machine.metadata = machine.metadata._replace(producer_epoch=32_766)
    sim.ids.insert(0, None)
    sim.time.advance(TIMEOUT_MS + SWEEP_MS)
    assert sim.partitions.markers == []
    sim.time.advance(SWEEP_MS)
    known = sim.known()
    assert known is not None
    assert known.producer_id != producer.producer_id
    assert (known.producer_epoch, known.state) == (0, TransactionState.COMPLETE_ABORT)


def test_ids_that_nobody_uses_are_forgotten_and_open_transactions_are_not() -> None:
    sim = Sim()
    count = TOMBSTONES_AT_ONCE + 2
    sim.ids = list(range(count + 1))
    for number in range(count):
        sim.init(key=f"id-{number}")
    sim.partitions.answers[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10**6
    sim.end_transaction(sim.begun(A))
    written = len(sim.log.batches)
    sim.time.clock.advance(EXPIRATION_MS - 1 - EXPIRY_SWEEP_MS)
    assert len(sim.coordinator.machines()[1]) == count + 1
    sim.time.clock.advance(EXPIRY_SWEEP_MS + 1)
    for _ in range(100):
        sim.time.loop.run_turn(0)
    (left,) = sim.coordinator.machines()[1]
    assert left.transactional_id == "t"
    assert sim.states().count("tombstone") == count
    assert len(sim.log.batches) == written + 2
    reloaded = sim.lost_after(len(sim.log.batches))
    assert reloaded.known("id-0") is None


def test_ids_whose_tombstones_do_not_fit_into_one_batch_are_forgotten_by_several() -> None:
    sim = Sim()
    sim.ids = list(range(9))
    for number in range(9):
        sim.init(key=f"id-{number}")
    written = len(sim.log.batches)
    sim.log.max_message_bytes = 150
    sim.time.clock.advance(EXPIRATION_MS)
    for _ in range(10):
        sim.time.loop.run_turn(0)
    assert sim.coordinator.machines()[1] == []
    assert written + 1 < len(sim.log.batches) <= written + 9


def test_a_time_out_must_be_positive_and_within_the_brokers_bound() -> None:
    sim = Sim()
    for timeout_ms in (0, -1, 900_001):
        assert sim.init(timeout_ms=timeout_ms) == TransactionResult(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT
        )
    for timeout_ms in (60_000, 0):
        empty = sim.init(key="", timeout_ms=timeout_ms)
        assert empty == TransactionResult(ErrorCode.INVALID_REQUEST), "the id is checked first"
    assert sim.log.batches == []


def test_without_a_producer_id_the_client_asks_again() -> None:
    sim = Sim()
    sim.ids.insert(0, None)
    assert sim.init() == TransactionResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert sim.init() == TransactionResult(NONE, 500, 0)


def test_requests_that_overtake_one_that_waits_for_a_producer_id_count() -> None:
    sim = Sim()
    waiting = []
    sim.give_id = waiting.append
    assert sim.init() is None
    assert sim.init() is None
    waiting[1](7)
    assert sim.reply() == TransactionResult(NONE, 7, 0)
    waiting[0](6)
    assert sim.reply() == TransactionResult(NONE, 7, 1)


def test_verification_says_which_partitions_take_part_and_adds_if_asked() -> None:
    sim = Sim()
    producer = sim.begun(A)
    answers: list[dict[object, ErrorCode]] = []

    def verify(who: ProducerIdAndEpoch, *, adds: bool, key: str = "t") -> dict[object, ErrorCode]:
        sim.coordinator.verify(key, *who, [A, B], adds=adds, done=answers.append)
        return answers.pop()

    assert verify(producer, adds=False) == {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert verify(producer, adds=True) == {A: NONE, B: NONE}
    assert verify(producer, adds=False) == {A: NONE, B: NONE}
    zombie = producer._replace(producer_epoch=9)
    for adds in (True, False):
        assert verify(zombie, adds=adds) == {A: FENCED, B: FENCED}
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert verify(producer, adds=adds, key="x") == {A: unknown, B: unknown}
        invalid = ErrorCode.INVALID_REQUEST
        assert verify(producer, adds=adds, key="") == {A: invalid, B: invalid}


def test_records_of_later_versions_are_passed_over_and_damaged_ones_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = plain_batch([(b"\x00\x07whatever", b"x"), (encode_key("u"), b"\x00\x09zz")], 1)
    log = MemoryStateLog(TRANSACTION_STATE)
    log.put(bytes(later))
    with caplog.at_level(logging.WARNING, "klog.transaction"):
        assert Sim(log).init() == TransactionResult(NONE, 500, 0)
    assert caplog.text.count("record-skipped") == 2
    log = MemoryStateLog(TRANSACTION_STATE)
    log.put(bytes(plain_batch([(encode_key("t"), b"\x00\x01")], 1)))
    assert Sim(log).init() == TransactionResult(ErrorCode.NOT_COORDINATOR)


def test_tools_get_an_error_while_a_shard_loads() -> None:
    sim = Sim()
    log = MemoryStateLog(TRANSACTION_STATE)
    log.put(sim.log.batches[0] if sim.log.batches else bytes(plain_batch([(b"", b"")], 1)))
    assert log.log_end_offset == Offset(1)
    sim.coordinator.on_lead(log)
    assert sim.coordinator.machines() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert sim.init() == TransactionResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_partitions_that_do_not_answer_yet_are_not_asked_twice() -> None:
    partitions = Partitions()
    sim = Sim(partitions=partitions)
    partitions.is_silent = True
    producer = sim.begun(A)
    sim.end_transaction(producer)
    for _ in range(3):
        again = sim.end_transaction(producer)
        assert again is not None
        assert again.error_code is CONCURRENT
    sim.time.advance(30_000)
    assert len(partitions.markers) == 1
