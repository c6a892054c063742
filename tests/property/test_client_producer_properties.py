"""The producer against a broker that follows Kafka's rules, through lost replies and refusals.

The model has no sockets: a schedule decides for each request whether it is lost before or after it
was written, refused, or answered. As long as the broker keeps its state, each record is written
once, in order.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_klog.client.producer.batch_order import BatchOrder, Verdict
from pyspark_klog.client.producer.batches import Batch, Identity
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition

_FATES = ("answered", "lost before", "lost after", "refused")


@dataclass
class _Log:
    """One partition of a broker: KIP-98's window of five batches for one producer."""

    records: list[int] = field(default_factory=list)
    window: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))
    next_sequence: int = 0
    identity: Identity | None = None

    def append(self, batch: Batch) -> ErrorCode:
        if batch.identity != self.identity:
            if batch.sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.identity, self.next_sequence = batch.identity, 0
            self.window.clear()
        if (batch.sequence, batch.record_count) in self.window:
            return ErrorCode.NONE
        if batch.sequence != self.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        first = int.from_bytes(batch.data, "big")
        self.records += range(first, first + batch.record_count)
        self.window.append((batch.sequence, batch.record_count))
        self.next_sequence += batch.record_count
        return ErrorCode.NONE


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=25),
    fates=st.lists(st.sampled_from(_FATES), max_size=60),
    replies_late=st.lists(st.booleans(), max_size=60),
)
@example(  # The head's answer is lost twice while newer batches fill the broker's window of five.
    sizes=[(0, 1)] * 25,
    fates=["answered"] * 9 + ["lost after"] + ["answered"] * 4 + ["lost after"],
    replies_late=([False] * 5 + [True] * 4) * 2,
)
def test_every_record_once_and_in_order(
    sizes: list[tuple[int, int]], fates: list[str], replies_late: list[bool]
) -> None:
    expected, logs, identities = _run(sizes, fates, replies_late)
    assert {p: log.records for p, log in logs.items()} == expected
    # The broker kept its state, so the producer never needed a new identity.
    assert identities == 1


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 2)), min_size=1, max_size=25),
    fates=st.lists(st.sampled_from((*_FATES, "set aside")), max_size=60),
    replies_late=st.lists(st.booleans(), max_size=60),
)
@example(  # One partition gets a new identity while the other's batch may or may not be written.
    sizes=[(0, 1), (1, 1)], fates=["lost after", "set aside"], replies_late=[]
)
@example(  # Both happen in one partition: the lost batch precedes the one that is set aside.
    sizes=[(1, 1), (1, 1)], fates=["set aside", "lost after"], replies_late=[]
)
def test_a_record_that_is_set_aside_lets_no_other_be_written_twice(
    sizes: list[tuple[int, int]], fates: list[str], replies_late: list[bool]
) -> None:
    expected, logs, _ = _run(sizes, fates, replies_late)
    assert {p: log.records for p, log in logs.items()} == expected


@given(
    sizes=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=25),
    fates=st.lists(st.sampled_from(_FATES), max_size=60),
    replies_late=st.lists(st.booleans(), max_size=60),
    over=st.lists(st.none() | st.integers(0, 30), max_size=60),
)
@example(  # The head may be written, its time is over, and the batch behind it goes on.
    sizes=[(0, 1), (0, 1)], fates=["lost after"], replies_late=[], over=[0, None]
)
def test_a_batch_whose_time_is_over_lets_no_other_be_lost_or_written_twice(
    sizes: list[tuple[int, int]],
    fates: list[str],
    replies_late: list[bool],
    over: list[int | None],
) -> None:
    dropped: dict[TopicPartition, set[int]] = {}
    expected, logs, _ = _run(sizes, fates, replies_late, over, dropped)
    for partition, log in logs.items():
        # A dropped batch that was sent before may be written; a record is never written twice.
        missing = dropped.get(partition, set()) - set(log.records)
        assert log.records == [each for each in expected[partition] if each not in missing]


def _run(
    sizes: list[tuple[int, int]],
    fates: list[str],
    replies_late: list[bool],
    over: Sequence[int | None] = (),
    dropped: dict[TopicPartition, set[int]] | None = None,
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, _Log], int]:
    """Return the expected records, the broker's logs, and the number of identities.

    Each number in ``over`` chooses a batch that is not in flight to be dropped; ``dropped`` gets
    its records.
    """
    left = list(over)
    core = BatchOrder(idempotent=True, max_in_flight=5, max_request_bytes=100, max_attempts=1_000)
    core.leaves_refused_out = True
    logs = {TopicPartition("t", n): _Log() for n in range(2)}
    expected: dict[TopicPartition, list[int]] = {p: [] for p in logs}
    for number, count in sizes:
        partition = TopicPartition("t", number)
        first = len(expected[partition])
        core.add(Batch(partition, bytearray(first.to_bytes(4, "big")), count, 0))
        expected[partition] += range(first, first + count)
    identities = 0
    answers: deque[tuple[Batch, ErrorCode | None]] = deque()
    for _ in range(5_000):
        if core.is_idle:
            break
        chosen = left.pop() if left else None
        if chosen is not None and dropped is not None and (unsent := core.unsent()):
            batch = unsent[chosen % len(unsent)]
            first = int.from_bytes(batch.data, "big")
            dropped.setdefault(batch.partition, set()).update(
                range(first, first + batch.record_count)
            )
            core.drop_unsent(batch)
        if core.needs_identity:
            identities += 1
            core.set_identity(Identity(identities, 0))
        for batch in core.drain_batches(core.ready(0), 0):
            fate = fates.pop() if fates else "answered"
            if fate == "lost before":
                answers.append((batch, None))
            elif fate == "refused":
                answers.append((batch, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif fate == "set aside" and batch.record_count == 1 and not batch.may_be_written:
                expected[batch.partition].remove(int.from_bytes(batch.data, "big"))
                answers.append((batch, ErrorCode.INVALID_RECORD))
            else:
                code = logs[batch.partition].append(batch)
                answers.append((batch, None if fate == "lost after" else code))
        if answers and not (replies_late.pop() if replies_late else False):
            _settle(core, *answers.popleft())
    assert core.is_idle
    return expected, logs, identities


def _settle(core: BatchOrder, batch: Batch, code: ErrorCode | None) -> None:
    if code is None:
        core.retry(batch, 0)
        return
    verdict = core.verdict(batch, code)
    if verdict is Verdict.WRITTEN:
        core.written(batch, 0)
    elif verdict is Verdict.NEW_IDENTITY:
        core.retry_with_new_identity(batch)
    elif verdict is Verdict.SET_ASIDE:
        core.drop_batch(batch)
    else:
        assert verdict is Verdict.RETRY
        core.retry(batch, 0)
