"""A producer's order within a transaction: one identity, and sequences without gaps."""

from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batches import Batch, Identity
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition

_P = TopicPartition("t", 0)


def _core() -> BatchOrder:
    core = BatchOrder(
        idempotent=True,
        max_in_flight=5,
        max_request_bytes=1_000,
        max_attempts=100,
        transactional=True,
    )
    core.set_identity(Identity(7, 3))
    core.leaves_refused_out = True
    return core


def _send(core: BatchOrder, *counts: int) -> list[Batch]:
    """Batches with so many records, all under way behind one that is written."""
    first = Batch(_P, bytearray(10), 1, 0)
    core.add(first)
    assert core.drain_batches([_P], 0) == [first]
    core.written(first, 0)
    for count in counts:
        core.add(Batch(_P, bytearray(10), count, 0))
    return [batch for _ in counts for batch in core.drain_batches([_P], 0)]


def test_no_other_identity_is_asked_for() -> None:
    core = BatchOrder(
        idempotent=True, max_in_flight=5, max_request_bytes=9, max_attempts=9, transactional=True
    )
    assert not core.needs_identity
    core = _core()
    (only,) = _send(core, 1)
    assert core.verdict(only, ErrorCode.UNKNOWN_PRODUCER_ID) is Verdict.FAIL
    assert core.verdict(only, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.FAIL
    assert core.verdict(only, ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.FAIL
    assert core.verdict(only, ErrorCode.CONCURRENT_TRANSACTIONS) is Verdict.RETRY


def test_a_gap_behind_a_batch_that_failed_is_no_failure() -> None:
    core = _core()
    first, second = _send(core, 1, 1)
    assert core.verdict(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
    core.retry(first, 0)
    core.retry(second, 0)
    assert [(b.identity, b.sequence) for b in core.drain_batches([_P], 0)] == [(Identity(7, 3), 1)]


def test_batches_behind_one_that_is_set_aside_get_its_sequence() -> None:
    core = _core()
    written, aside, third, fourth = _send(core, 2, 1, 4, 1)
    assert [b.sequence for b in (written, aside, third, fourth)] == [1, 3, 4, 8]
    core.written(written, 1)
    assert core.verdict(aside, ErrorCode.INVALID_RECORD) is Verdict.SET_ASIDE
    core.drop_batch(aside)
    for batch in (third, fourth):
        assert core.verdict(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
        assert core.drain_batches([_P], 0) == []
        core.retry(batch, 0)
    assert [core.drain_batches([_P], 0)[0].sequence for _ in range(2)] == [3, 7]
    assert not core.needs_identity


def test_a_second_one_that_is_set_aside_leaves_no_gap_either() -> None:
    core = _core()
    first, second, third = _send(core, 1, 1, 1)
    core.drop_batch(first)
    core.drop_batch(second)
    core.retry(third, 0)
    assert [b.sequence for b in core.drain_batches([_P], 0)] == [1]


def test_what_lies_before_keeps_its_sequence() -> None:
    core = _core()
    lost, aside, third = _send(core, 1, 1, 1)
    core.retry(lost, 0)
    core.drop_batch(aside)
    core.retry(third, 0)
    assert core.drain_batches([_P], 0) == [lost]
    assert (lost.sequence, lost.may_be_written) == (1, True)
    core.written(lost, 1)
    assert [b.sequence for b in core.drain_batches([_P], 0)] == [2]


def test_a_record_that_may_be_written_is_not_set_aside() -> None:
    core = _core()
    (only,) = _send(core, 1)
    core.retry(only, 0)
    assert core.drain_batches([_P], 0) == [only]
    assert core.verdict(only, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.FAIL


def test_a_transaction_that_is_concurrent_leaves_no_doubt() -> None:
    """The coordinator answers so before a batch of the next transaction is written anywhere."""
    core = _core()
    (only,) = _send(core, 1)
    core.retry(only, 0, is_unwritten=True)
    assert core.drain_batches([_P], 0) == [only]
    assert core.verdict(only, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SET_ASIDE


def test_an_abort_drops_what_is_not_written() -> None:
    core = _core()
    for batch in _send(core, 2, 3):
        core.retry(batch, 9_000)
    core.drop_all()
    assert core.is_idle
    assert core.waiting() == []
    core.set_identity(Identity(7, 4))
    core.add(Batch(_P, bytearray(10), 1, 0))
    (after,) = core.drain_batches([_P], 0)
    assert (after.identity, after.sequence) == (Identity(7, 4), 0)


def test_sequences_go_on_when_nothing_that_was_dropped_had_one() -> None:
    core = _core()
    _send(core)
    core.add(Batch(_P, bytearray(10), 5, 0))
    core.drop_all()
    core.add(Batch(_P, bytearray(10), 1, 0))
    assert [b.sequence for b in core.drain_batches([_P], 0)] == [1]
