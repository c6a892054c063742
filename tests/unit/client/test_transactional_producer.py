"""The transactional producer against a broker that answers every error at every step."""

from collections.abc import Callable

import pytest

from pyspark_klog.client.errors import (
    ProducerFenced,
    ProducerUnusable,
    SettingError,
    TimedOut,
    TransactionMisuse,
    TransactionMustAbort,
)
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.producer.batches import Identity
from pyspark_klog.client.transactions.outcomes import Outcome, Step, outcome
from pyspark_klog.client.transactions.producer import (
    OpenTransaction,
    TransactionalProducer,
    end_transaction,
)
from pyspark_klog.client.transactions.states import TransactionalProducerState
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request
from tests.support.client.transaction_cases import put
from tests.support.client.transaction_model import PARTITIONS
from tests.support.client.transaction_world import Fate, World

_P, _Q = PARTITIONS
_KEYS = {
    Step.FIND_COORDINATOR: ApiKey.FIND_COORDINATOR,
    Step.INITIALIZE: ApiKey.INIT_PRODUCER_ID,
    Step.ADD_PARTITIONS: ApiKey.ADD_PARTITIONS_TO_TXN,
    Step.ADD_OFFSETS: ApiKey.ADD_OFFSETS_TO_TXN,
    Step.COMMIT_OFFSETS: ApiKey.TXN_OFFSET_COMMIT,
    Step.PRODUCE: ApiKey.PRODUCE,
    Step.COMMIT: ApiKey.END_TXN,
    Step.ABORT: ApiKey.END_TXN,
}
_OLD, _NEW = 0, 2
_STEPS = [
    *((_OLD, step) for step in Step),
    *((_NEW, step) for step in Step if step not in (Step.ADD_PARTITIONS, Step.ADD_OFFSETS)),
]


def _producer(world: World) -> TransactionalProducer:
    return TransactionalProducer(world.client, "id")


def _write(producer: TransactionalProducer, value: str) -> None:
    producer.begin_transaction()
    put(producer, _P, value)
    put(producer, _Q, value)
    producer.send_offsets_to_transaction({_P: CommittedOffset(int(value))}, "group")


def _once(key: ApiKey, fate: Fate | ErrorCode) -> Callable[[Request], Fate | ErrorCode]:
    """The first request of a kind has this fate."""
    left = [fate]

    def of(request: Request) -> Fate | ErrorCode:
        return left.pop() if left and request.api_key == key else Fate.ANSWERED

    return of


def _expected(step: Step, code: ErrorCode) -> Outcome:
    if step is Step.PRODUCE and (code.retriable or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return Outcome.RETRY
    found = outcome(step, code)
    # Where the producer is not initialized yet, there is nothing to abort.
    return Outcome.FATAL if step is Step.FIND_COORDINATOR and found is Outcome.ABORT else found


def _meet(version: int, step: Step, code: ErrorCode) -> tuple[World, Outcome]:
    """A transaction that meets an error at a step, once; then another one, if that can be."""
    world = World(version)
    producer = _producer(world)
    happened = Outcome.RETRY
    if step in (Step.FIND_COORDINATOR, Step.INITIALIZE):
        world.fate = _once(_KEYS[step], code)
    try:
        producer.init_transactions()
        if step not in (Step.FIND_COORDINATOR, Step.INITIALIZE):
            world.fate = _once(_KEYS[step], code)
        _write(producer, "1")
        if step is Step.ABORT:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    except TransactionMustAbort:
        happened = Outcome.ABORT
        with pytest.raises(TransactionMustAbort):
            producer.commit_transaction()
        with pytest.raises(TransactionMustAbort):
            put(producer, _P, "never")
        producer.abort_transaction()
    except ProducerUnusable as error:
        happened = Outcome.FENCED if isinstance(error, ProducerFenced) else Outcome.FATAL
        for call in (
            *(producer.init_transactions, producer.begin_transaction, producer.flush),
            *(producer.commit_transaction, producer.abort_transaction),
        ):
            with pytest.raises(ProducerUnusable) as again:
                call()
            assert (type(again.value), str(again.value)) == (type(error), str(error))
            # A kept error would keep the variables of all callers in memory with its traceback.
            assert again.value is not error
        return world, happened
    _write(producer, "2")
    producer.commit_transaction()
    world.settle()
    return world, happened


@pytest.mark.parametrize(("version", "step"), _STEPS)
def test_every_error_at_every_step(version: int, step: Step) -> None:
    for code in ErrorCode:
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            continue
        expected = _expected(step, code)
        world, happened = _meet(version, step, code)
        passes = expected in (Outcome.RETRY, Outcome.FIND)
        assert happened is (Outcome.RETRY if passes else expected), code.name
        if expected in (Outcome.FATAL, Outcome.FENCED):
            wanted = []
        else:
            wanted = ["1", "2"] if passes and step is not Step.ABORT else ["2"]
        assert [log.committed for log in world.model.logs.values()] == [wanted] * 2, code.name
        assert world.model.offsets == ({_P: 2} if wanted else {}), code.name
        lookups = 2 + (expected is Outcome.FIND)
        if step not in (Step.FIND_COORDINATOR, Step.INITIALIZE) and wanted:
            assert world.asked[ApiKey.FIND_COORDINATOR] == lookups, code.name


def test_a_group_that_may_not_be_found_spoils_its_transaction_only() -> None:
    world = World(_NEW)
    producer = _producer(world)
    producer.init_transactions()
    world.fate = _once(ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(TransactionMustAbort, match="of group group: GROUP_AUTHORIZATION_FAILED"):
        _write(producer, "1")
    producer.abort_transaction()
    _write(producer, "2")
    producer.commit_transaction()
    world.settle()
    assert [log.committed for log in world.model.logs.values()] == [["2"]] * 2


@pytest.mark.parametrize("fate", [Fate.LOST_BEFORE, Fate.LOST_AFTER, Fate.LATE])
@pytest.mark.parametrize(("version", "step"), _STEPS)
def test_what_is_lost_at_any_step_is_done_once(version: int, step: Step, fate: Fate) -> None:
    world = World(version, request_timeout_ms=1_000)
    producer = _producer(world)
    world.fate = _once(_KEYS[step], fate)
    producer.init_transactions()
    for number in range(3):
        _write(producer, f"{number}")
        if step is Step.ABORT and number == 0:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    world.settle()
    wanted = ["1", "2"] if step is Step.ABORT else ["0", "1", "2"]
    assert [log.committed for log in world.model.logs.values()] == [wanted] * 2
    assert world.model.offsets == {_P: 2}


@pytest.mark.parametrize("version", [_OLD, _NEW])
def test_a_call_that_timed_out_can_be_made_again(version: int) -> None:
    world = World(version, max_block_ms=500, request_timeout_ms=300)
    producer = _producer(world)
    steps: list[Callable[[], None]] = [
        producer.init_transactions,
        lambda: _write(producer, "1"),
        producer.flush,  # which has delivery.timeout.ms, and after it only the abort
        producer.commit_transaction,
        lambda: _write(producer, "2"),
        producer.flush,
        producer.abort_transaction,
        lambda: _write(producer, "3"),
        producer.flush,
        producer.commit_transaction,
    ]
    waits = 0
    for step in steps:
        if step.__name__ in ("init_transactions", "commit_transaction", "abort_transaction"):
            world.fate = lambda _: Fate.LOST_BEFORE
            with pytest.raises(TimedOut):
                step()
            with pytest.raises(TransactionMisuse):
                put(producer, _P, "never")
            waits += 1
        world.fate = lambda _: Fate.ANSWERED
        step()
    world.settle()
    assert waits == 4
    assert [log.committed for log in world.model.logs.values()] == [["1", "3"]] * 2


@pytest.mark.parametrize("version", [_OLD, _NEW])
def test_which_requests_a_transaction_takes(version: int) -> None:
    world = World(version)
    producer = _producer(world)
    producer.init_transactions()
    world.asked.clear()
    for number in range(2):
        _write(producer, f"{number}")
        put(producer, _P, "more")
        producer.commit_transaction()
    added = 2 if version == _OLD else 0
    # Both partitions lead to one request each, since the first batch is sent at once.
    assert world.asked[ApiKey.ADD_PARTITIONS_TO_TXN] == 2 * added
    assert world.asked[ApiKey.ADD_OFFSETS_TO_TXN] == added
    assert world.asked[ApiKey.INIT_PRODUCER_ID] == 0
    assert world.asked[ApiKey.END_TXN] == 2
    assert producer.identity == (Identity(7, 0) if version == _OLD else Identity(7, 2))
    # Produce and TxnOffsetCommit join partitions and groups from these versions on, and EndTxn
    # begins the next epoch; none of it may happen to a transaction of an older version.
    spoken = [world.spoken[key] for key in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT)]
    assert [*spoken, world.spoken[ApiKey.END_TXN]] == (
        [11, 4, 4] if version == _OLD else [12, 5, 5]
    )


def test_a_cluster_that_is_upgraded_between_transactions() -> None:
    """The version of a transaction stays; the first one of version 2 gets an epoch of its own."""
    world = World(_OLD)
    producer = _producer(world)
    producer.init_transactions()
    producer.begin_transaction()
    put(producer, _P, "1")
    world.versions.features["transaction.version"] = _NEW
    newer = type(world.versions)(world.versions.ranges, {"transaction.version": _NEW}, 2)
    world.versions = newer
    put(producer, _P, "2")
    for link in world.client.links:
        link.connection.fail_calls(ProducerUnusable("upgrade"))  # type: ignore[attr-defined]
    producer.commit_transaction()
    world.settle()
    world.model.version = _NEW
    assert producer.identity == Identity(7, 0)
    producer.begin_transaction()
    assert producer.identity == Identity(7, 1)
    put(producer, _P, "3")
    producer.commit_transaction()
    world.settle()
    assert world.model.logs[_P].committed == ["1", "2", "3"]
    assert producer.identity == Identity(7, 2)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [_OLD, _NEW])
def test_a_transaction_that_is_handed_over(version: int, commit: bool) -> None:
    world = World(version)
    producer = _producer(world)
    producer.init_transactions()
    _write(producer, "1")
    opened = producer.hand_over()
    assert opened == OpenTransaction("id", 7, 0, version)
    assert producer.state is TransactionalProducerState.UNINITIALIZED
    assert [log.open for log in world.model.logs.values()] == [["1"]] * 2
    world.fate = _once(ApiKey.END_TXN, Fate.LOST_AFTER)
    for _ in range(2):
        end_transaction(world.client, opened, commit=commit)
    world.settle()
    assert [log.committed for log in world.model.logs.values()] == [["1"] if commit else []] * 2
    with pytest.raises(ProducerUnusable, match="INVALID_TXN_STATE"):
        end_transaction(world.client, opened, commit=not commit)


def test_a_commit_is_not_sent_before_every_batch_is_written() -> None:
    world = World(_NEW)
    producer = _producer(world)
    producer.init_transactions()
    world.fate = _once(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
    commits = []

    def on_send(request: Request) -> None:
        if isinstance(request, EndTxnRequest):
            commits.append([list(log.open) for log in world.model.logs.values()])

    world.on_send = on_send
    producer.begin_transaction()
    for number in range(9):
        put(producer, _P, f"{number}")
        put(producer, _Q, f"{number}")
    producer.commit_transaction()
    assert commits == [[[f"{number}" for number in range(9)]] * 2]


def test_records_that_are_not_delivered_in_time_must_be_aborted() -> None:
    world = World(_NEW, delivery_timeout_ms=2_000, request_timeout_ms=1_000)
    producer = _producer(world)
    producer.init_transactions()
    world.fate = lambda request: (
        Fate.LOST_BEFORE if request.api_key == ApiKey.PRODUCE else Fate.ANSWERED
    )
    with pytest.raises(TransactionMustAbort, match=r"within 2000 ms \(delivery.timeout.ms\)"):
        _write(producer, "1")
        producer.commit_transaction()
    world.fate = lambda _: Fate.ANSWERED
    producer.abort_transaction()
    _write(producer, "2")
    producer.commit_transaction()
    world.settle()
    assert [log.committed for log in world.model.logs.values()] == [["2"]] * 2


def test_an_abort_of_what_never_began_asks_nobody() -> None:
    world = World(_OLD)
    producer = _producer(world)
    producer.init_transactions()
    world.asked.clear()
    producer.begin_transaction()
    producer.abort_transaction()
    assert producer.state is TransactionalProducerState.READY
    assert not world.asked


def test_it_needs_idempotence() -> None:
    with pytest.raises(SettingError, match=r"need enable\.idempotence=true"):
        _producer(World(_NEW, acks="1"))
