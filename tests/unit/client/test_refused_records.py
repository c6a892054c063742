"""Records that their topic refuses: they are left out, and all records behind them are written."""

import pytest

from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batches import Batch, Identity
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_SEQUENCE, TopicPartition

_P, _Q = TopicPartition("t", 0), TopicPartition("t", 1)


def _core(*, sets_aside: bool = True, idempotent: bool = True) -> BatchOrder:
    core = BatchOrder(
        idempotent=idempotent, max_in_flight=5, max_request_bytes=1_000, max_attempts=9
    )
    if idempotent:
        core.set_identity(Identity(7, 0))
    core.leaves_refused_out = sets_aside
    return core


def _sent(core: BatchOrder, *record_counts: int, partition: TopicPartition = _P) -> list[Batch]:
    batches = [Batch(partition, bytearray(10), count, 0) for count in record_counts]
    for batch in batches:
        core.add(batch)
        _let_know(core)
        core.drain_batches([partition], 0)
    return batches


def _let_know(core: BatchOrder) -> None:
    """Let several batches be in flight, as after the first acknowledged batch."""
    for queue in core._queues.values():
        queue.is_known = True


@pytest.mark.parametrize(
    "code",
    [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP],
)
def test_a_batch_is_split_until_one_record_remains(code: ErrorCode) -> None:
    core = _core()
    several, one = _sent(core, 2, 1)
    assert core.verdict(several, code) is Verdict.SPLIT
    assert core.verdict(one, code) is Verdict.SET_ASIDE


def test_other_refusals_are_not_a_records_fault() -> None:
    core = _core()
    (batch,) = _sent(core, 1)
    assert core.verdict(batch, ErrorCode.TOPIC_AUTHORIZATION_FAILED) is Verdict.FAIL
    assert core.verdict(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.RETRY


def test_without_a_receiver_one_record_fails() -> None:
    core = _core(sets_aside=False)
    several, one = _sent(core, 2, 1)
    assert core.verdict(several, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    assert core.verdict(one, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.FAIL
    assert core.verdict(several, ErrorCode.INVALID_RECORD) is Verdict.FAIL


def test_what_is_behind_goes_on_under_a_new_identity() -> None:
    core = _core()
    bad, behind, last = _sent(core, 1, 3, 2)
    (other,) = _sent(core, 4, partition=_Q)
    core.drop_batch(bad)
    # The broker misses a sequence: the next batch is at the head now, the one behind it is not.
    assert core.verdict(behind, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.NEW_IDENTITY
    assert core.verdict(last, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    core.retry_with_new_identity(behind)
    core.retry(last, 0)
    # No batch is sent before the responses to all batches in flight have arrived.
    assert not core.needs_identity
    assert core.ready(0) == []
    core.written(other, 0)
    assert core.needs_identity
    core.set_identity(Identity(8, 0))
    assert core.ready(0) == [_P]
    _let_know(core)
    taken = [batch for _ in range(2) for batch in core.drain_batches([_P], 0)]
    assert taken == [behind, last]
    assert [(b.sequence, b.identity.producer_id) for b in taken] == [(0, 8), (3, 8)]
    for batch in taken:
        core.written(batch, 0)
    assert core.is_idle
    assert core.written_records == 9


def test_another_partitions_lost_answer_is_asked_for_before_the_new_identity() -> None:
    core = _core()
    bad, behind = _sent(core, 1, 1)
    (other,) = _sent(core, 3, partition=_Q)
    core.drop_batch(bad)
    core.retry(other, 50)
    core.retry_with_new_identity(behind)
    # Under another identity its broker would write it a second time.
    assert not core.needs_identity
    assert core.ready(0) == []
    assert core.next_wakeup_ms(0) == 50
    assert core.drain_batches(core.ready(50), 50) == [other]
    assert (other.sequence, other.identity) == (0, Identity(7, 0))
    core.written(other, 0)
    assert core.needs_identity
    core.set_identity(Identity(8, 0))
    assert core.drain_batches(core.ready(50), 50) == [behind]
    assert (behind.sequence, behind.identity) == (0, Identity(8, 0))


def test_the_last_one_leaves_nothing_to_wait_for() -> None:
    core = _core()
    (bad,) = _sent(core, 1)
    core.drop_batch(bad)
    assert core.is_idle
    assert core.in_flight == 0
    assert core.written_records == 0


def test_without_idempotence_no_identity_is_asked_for() -> None:
    core = _core(idempotent=False)
    bad, behind = _sent(core, 1, 1)
    assert behind.sequence == NO_SEQUENCE
    core.drop_batch(bad)
    assert not core.needs_identity
    core.written(behind, 0)
    assert core.is_idle
