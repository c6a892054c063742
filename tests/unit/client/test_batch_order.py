"""The producer's order: sequences, failures, new identities, splits."""

import pytest

from pyspark_klog.client.errors import DeliveryFailed
from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batch_splitting import split_in_half
from pyspark_klog.client.producer.batches import NO_IDENTITY, Batch, Identity
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec

_P = TopicPartition("t", 0)
_Q = TopicPartition("t", 1)


def _core(**changes: int | bool) -> BatchOrder:
    core = BatchOrder(
        idempotent=bool(changes.get("idempotent", True)),
        max_in_flight=int(changes.get("max_in_flight", 5)),
        max_request_bytes=int(changes.get("max_request_bytes", 1_000)),
        max_attempts=int(changes.get("max_attempts", 100)),
    )
    if core.idempotent:
        core.set_identity(Identity(7, 0))
    return core


def _batch(partition: TopicPartition = _P, records: int = 3, size: int = 10) -> Batch:
    return Batch(partition, bytearray(size), records, 0)


def _add(core: BatchOrder, count: int, partition: TopicPartition = _P) -> list[Batch]:
    batches = [_batch(partition) for _ in range(count)]
    for batch in batches:
        core.add(batch)
    _let_know(core)
    return batches


def _let_know(core: BatchOrder) -> None:
    """Let several batches be in flight, as after the first acknowledged batch."""
    for queue in core._queues.values():
        queue.is_known = True


def _take_all(core: BatchOrder, now_ms: int = 0) -> list[Batch]:
    taken: list[Batch] = []
    while some := core.drain_batches(core.ready(now_ms), now_ms):
        taken += some
    return taken


def test_nothing_is_sent_without_an_identity() -> None:
    core = BatchOrder(idempotent=True, max_in_flight=5, max_request_bytes=99, max_attempts=9)
    core.add(_batch())
    assert core.needs_identity
    assert core.ready(0) == []
    core.set_identity(Identity(1, 0))
    assert core.ready(0) == [_P]


def test_the_numbers_ahead_are_those_that_the_next_batches_get() -> None:
    core = _core()
    assert core.expected_sequences([_P, _Q]) == (Identity(7, 0), [0, 0])
    _add(core, 7)
    taken = _take_all(core)
    assert len(taken) == 5
    assert core.expected_sequences([_P, _Q]) == (Identity(7, 0), [21, 0])
    core.add(next_one := _batch())
    while taken:
        for batch in taken:
            core.written(batch, 0)
        taken = _take_all(core)
    assert (next_one.identity, next_one.sequence) == (Identity(7, 0), 21)


def test_there_are_no_numbers_ahead_without_an_identity() -> None:
    core = BatchOrder(idempotent=True, max_in_flight=5, max_request_bytes=99, max_attempts=9)
    assert core.expected_sequences([_P]) == (NO_IDENTITY, [])
    core.disable_idempotence()
    assert core.expected_sequences([_P]) == (NO_IDENTITY, [])


def test_sequences_follow_each_other_and_five_are_under_way() -> None:
    core = _core()
    _add(core, 7)
    taken = _take_all(core)
    assert [b.sequence for b in taken] == [0, 3, 6, 9, 12]
    core.written(taken[0], 100)
    assert [b.sequence for b in _take_all(core)] == [15]
    assert core.written_records == 3


def test_the_first_batch_under_an_identity_is_in_flight_alone() -> None:
    core = _core()
    first, second, third = (_batch() for _ in range(3))
    for batch in (first, second, third):
        core.add(batch)
    # The broker takes any sequence of a producer that it does not know: also the second one's.
    assert _take_all(core) == [first]
    core.written(first, 0)
    assert _take_all(core) == [second, third]
    core.retry_with_new_identity(second)
    core.retry(third, 0)
    core.set_identity(Identity(8, 0))
    assert _take_all(core) == [second]


def test_a_request_has_one_batch_a_partition_and_bounded_bytes() -> None:
    core = _core(max_request_bytes=15)
    _add(core, 2, _P)
    _add(core, 1, _Q)
    assert [b.partition for b in core.drain_batches(core.ready(0), 0)] == [_P]
    assert [b.partition for b in core.drain_batches([_Q, _P], 0)] == [_Q]


def test_a_batch_larger_than_a_request_still_goes() -> None:
    core = _core(max_request_bytes=5)
    _add(core, 1)
    assert len(_take_all(core)) == 1


def test_after_a_failure_all_come_back_and_then_go_again_one_by_one() -> None:
    core = _core()
    batches = _add(core, 6)
    taken = _take_all(core)
    core.retry(taken[0], 50)
    assert core.ready(100) == []
    for batch in taken[1:]:
        assert core.verdict(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.RETRY
        core.retry(batch, 50)
    assert core.ready(49) == []
    assert core.next_wakeup_ms(49) == 50
    for number, batch in enumerate(batches[:5]):
        # Newer batches beside it could push it out of the broker's window of five.
        assert _take_all(core, 50) == [batch]
        assert batch.sequence == 3 * number
        core.written(batch, 0)
    assert _take_all(core, 50) == batches[5:]


def test_a_gap_at_the_head_asks_for_a_new_identity_and_begins_at_zero() -> None:
    core = _core()
    batches = _add(core, 3)
    (other,) = _add(core, 1, _Q)
    taken = _take_all(core)
    head = batches[0]
    assert core.verdict(head, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Verdict.NEW_IDENTITY
    core.retry_with_new_identity(head)
    assert not core.needs_identity
    for batch in taken:
        if batch is not head:
            core.retry(batch, 0)
    # The other partition has no gap, and its batch may be written: it goes as it was.
    assert not core.needs_identity
    assert _take_all(core) == [other]
    assert (other.sequence, other.identity) == (0, Identity(7, 0))
    core.written(other, 0)
    _add(core, 1, _Q)
    assert core.needs_identity
    assert core.ready(0) == []
    core.set_identity(Identity(8, 0))
    _let_know(core)
    again = _take_all(core)
    assert {(b.partition, b.sequence) for b in again} == {(_P, 0), (_P, 3), (_P, 6), (_Q, 0)}
    assert {b.identity for b in again} == {Identity(8, 0)}


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.WRITTEN),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, Verdict.WRITTEN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Verdict.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (ErrorCode.UNKNOWN_PRODUCER_ID, Verdict.NEW_IDENTITY),
        (ErrorCode.MESSAGE_TOO_LARGE, Verdict.SPLIT),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FAIL),
        (ErrorCode.INVALID_RECORD, Verdict.FAIL),
    ],
)
def test_what_an_answer_means(code: ErrorCode, verdict: Verdict) -> None:
    core = _core()
    _add(core, 1)
    [batch] = _take_all(core)
    assert core.verdict(batch, code) is verdict


def test_attempts_end() -> None:
    core = _core(max_attempts=1)
    _add(core, 1)
    [batch] = _take_all(core)
    assert core.verdict(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.RETRY
    core.retry(batch, 0)
    _take_all(core)
    assert core.verdict(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER) is Verdict.FAIL


def test_sequences_begin_again_at_zero_after_the_last() -> None:
    core = _core()
    for records in (2**31 - 2, 3, 1):
        core.add(_batch(records=records))
    _let_know(core)
    assert [b.sequence for b in _take_all(core)] == [0, 2**31 - 2, 1]


def _real(count: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for number in range(count):
        builder.append(b"k%d" % number, b"v" * 20, 1_000 + number)
    return bytearray(builder.build())


def test_a_split_keeps_records_order_and_sequences() -> None:
    core = _core()
    core.add(Batch(_P, _real(5, Codec.LZ4), 5, 0))
    core.add(_batch(records=4))
    _let_know(core)
    taken = _take_all(core)
    core.split(taken[0], split_in_half)
    core.retry(taken[1], 0)
    again = _take_all(core)
    assert [(b.sequence, b.record_count) for b in again] == [(0, 3), (3, 2), (5, 4)]
    keys = [r.key for b in again[:2] for r in BatchView(b.data).records()]
    assert keys == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    assert all(BatchView(b.data).codec is Codec.LZ4 for b in again[:2])


def test_one_record_cannot_be_split() -> None:
    core = _core()
    core.add(Batch(_P, _real(1), 1, 0))
    [batch] = _take_all(core)
    assert core.verdict(batch, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.FAIL
    with pytest.raises(DeliveryFailed, match="could not be split"):
        core.split(batch, split_in_half)


def test_without_idempotence_there_are_no_sequences() -> None:
    core = _core(idempotent=False)
    _add(core, 2)
    assert [b.sequence for b in _take_all(core)] == [-1, -1]


# --- batches whose time is over ------------------------------------------------------------------
def test_a_batch_that_was_never_sent_leaves_no_gap() -> None:
    core = _core(max_in_flight=1)
    first, second, third = _add(core, 3)
    assert _take_all(core) == [first]
    core.drop_unsent(second)
    core.written(first, 0)
    assert _take_all(core) == [third]
    assert (third.sequence, core.needs_identity) == (3, False)
    core.written(third, 3)
    assert core.is_idle


def test_after_a_dropped_batch_that_may_be_written_a_new_identity_is_needed() -> None:
    core = _core(max_in_flight=1)
    first, second = _add(core, 2)
    _take_all(core)
    core.retry(first, 0)
    assert not core.needs_identity
    core.drop_unsent(first)
    assert core.needs_identity and core.ready(0) == []
    core.set_identity(Identity(8, 0))
    assert _take_all(core) == [second]
    assert (second.sequence, second.identity) == (0, Identity(8, 0))


def test_equal_batches_are_told_apart() -> None:
    core = _core()
    first, second = _add(core, 2)
    assert first == second
    core.drop_unsent(second)
    assert _take_all(core)[0] is first


def test_the_parts_of_a_split_batch_are_returned_in_order() -> None:
    core = _core()
    builder = BatchBuilder()
    for number in range(3):
        builder.append(None, b"%d" % number, 1)
    core.add(Batch(_P, bytearray(builder.build()), 3, 0))
    [batch] = _take_all(core)
    parts = core.split(batch, split_in_half)
    assert [part.record_count for part in parts] == [2, 1]
    assert _take_all(core)[0] is parts[0]
