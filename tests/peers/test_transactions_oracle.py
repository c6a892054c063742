"""The same transactions on Apache Kafka 4.3.1 and on klog: the same answers, step by step."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_transactions import ListTransactionsRequest
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator.transaction_client import PLAIN, TransactionClient
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

pytestmark = pytest.mark.peers

ABSENT, OWN = TopicPartition("plain", 9), TopicPartition("__consumer_offsets", 0)
SWEEP = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
FAR = 1 << 40  # a producer id that no producer has
NOT_YET = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
UNKNOWN_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class Player:
    """One producer of a script. While markers are on their way it asks again: klog's are written by
    then."""

    def __init__(self, connection: RawClient, key: str, *, raises: bool) -> None:
        self.client = TransactionClient(connection, key, raises=raises)
        self.raises = raises
        self.first_id = -1
        self.group = f"group-{key}"

    def _settled(self, ask: Callable[[], int | ErrorCode]) -> str:
        def settled_code() -> tuple[ErrorCode]:
            code = ErrorCode(ask())
            assert code not in NOT_YET, code
            return (code,)

        return eventually(settled_code)[0].name

    def init(self, **more: Any) -> str:
        told = self._settled(lambda: self.client.init(**more))
        if self.first_id < 0:
            self.first_id = self.client.producer_id
        return told

    def own(self, epoch: int | None = None, producer_id: int | None = None) -> dict[str, int]:
        return {
            "producer_id": self.client.producer_id if producer_id is None else producer_id,
            "producer_epoch": self.client.epoch if epoch is None else epoch,
        }

    def begin_transaction(self) -> str:
        if not self.raises:
            assert self._settled(lambda: self.client.add(PLAIN)[0]) == "NONE"
        return self._settled(lambda: self.client.produce(PLAIN, b"x"))

    def end_transaction(
        self, *, commit: bool = True, epoch: int | None = None, version: int | None = None
    ) -> str:
        mine = self.client.epoch
        if epoch is not None:
            self.client.epoch = epoch
        told = self._settled(lambda: self.client.end_transaction(commit=commit, version=version))
        if epoch is not None and told != "NONE":
            self.client.epoch = mine
        return told

    def offsets(self, version: int | None = None, **member: Any) -> str:
        (code,) = self.client.commit_offsets(5, self.group, version, **member)
        return ErrorCode(code).name

    @property
    def now(self) -> tuple[bool, int]:
        """Whether the producer id is still the first, and the epoch."""
        return self.client.producer_id == self.first_id, self.client.epoch


Script = Callable[[Player, Player], list[Any]]


def nothing_begun(p: Player, _: Player) -> list[Any]:
    return [
        p.init(),
        p.end_transaction(),
        p.end_transaction(commit=False),
        p.now,
        p.end_transaction(commit=False),
        p.now,
    ]


def commit_and_again(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init(), p.begin_transaction(), p.end_transaction(), p.now]
    before = p.client.epoch - 1
    told += [
        p.end_transaction(epoch=before),
        p.now,
        p.end_transaction(commit=False, epoch=before),
        p.now,
    ]
    return [
        *told,
        p.end_transaction(),
        p.begin_transaction(),
        p.end_transaction(commit=False),
        p.now,
    ]


def abort_and_again(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init(), p.begin_transaction(), p.end_transaction(commit=False), p.now]
    before = p.client.epoch - 1
    told += [p.end_transaction(commit=False, epoch=before), p.now, p.end_transaction(epoch=before)]
    return [
        *told,
        p.end_transaction(),
        p.end_transaction(commit=False),
        p.now,
        p.begin_transaction(),
        p.end_transaction(),
        p.now,
    ]


def fenced(p: Player, other: Player) -> list[Any]:
    other.client.transactional_id, other.group = p.client.transactional_id, p.group
    told: list[Any] = [
        p.init(),
        p.begin_transaction(),
        other.init(),
        other.client.epoch,
    ]
    told += [
        p.end_transaction(),
        p.end_transaction(commit=False),
        ErrorCode(p.client.add(PLAIN)[0]).name,
    ]
    told += [ErrorCode(p.client.add_offsets(p.group)).name, p.offsets()]
    told += [p.client.produce(PLAIN, b"zombie").name, p.init(**p.own())]
    return [*told, other.begin_transaction(), other.end_transaction(), other.now[1]]


def old_names_of_the_fence(p: Player, other: Player) -> list[Any]:
    other.client.transactional_id = p.client.transactional_id
    told: list[Any] = [p.init(), other.init()]
    for version in range(4):
        told.append(ErrorCode(p.client.add(PLAIN, version=version)[0]).name)
        told.append(ErrorCode(p.client.add_offsets(p.group, version=version)).name)
        told.append(p.end_transaction(version=version))
    return [*told, *(p.init(version=version, **p.own()) for version in (3, 4, 5))]


def its_own_epoch(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init()]
    old = p.own()
    told += [p.init(**old), p.now, p.init(**old), p.now, p.init(**p.own()), p.now]
    told += [
        p.init(**p.own(epoch=0)),
        p.init(**p.own(epoch=99)),
        p.init(**p.own(producer_id=1 << 40)),
    ]
    told += [p.init(producer_id=5), p.begin_transaction(), p.init(**p.own()), p.init(**p.own())]
    return [*told, p.now, p.begin_transaction(), p.end_transaction(), p.now]


def timed_out(p: Player, other: Player) -> list[Any]:
    told: list[Any] = [p.init(timeout_ms=500), p.begin_transaction()]

    def is_aborted() -> bool:
        return state_of(p) == "CompleteAbort"

    eventually(is_aborted)
    mine = p.client.epoch
    told += [p.end_transaction(), p.offsets()]
    if p.raises:
        told += [
            p.end_transaction(commit=False),
            p.now,
            p.begin_transaction(),
            p.end_transaction(),
            p.now,
        ]
    else:
        told += [
            p.end_transaction(commit=False),
            p.init(**p.own(epoch=mine)),
            p.now,
            p.begin_transaction(),
            p.end_transaction(),
        ]
    return told


def state_of(p: Player) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[p.client.transactional_id])
    return str(p.client.caller.call(request, 0).transaction_states[0].transaction_state)


def offsets(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init()]
    if not p.raises:
        told += [p.offsets(version=version) for version in range(5)]
        told.append(ErrorCode(p.client.add_offsets(p.group)).name)
    told += [p.offsets(generation_id=3, member_id="m"), p.offsets()]
    told += [p.offsets(generation_id=3, member_id="m"), p.offsets(member_id="m")]
    told += [
        str(p.client.committed(p.group)),
        str(p.client.committed(p.group, stable=True)),
        p.end_transaction(),
    ]
    eventually(lambda: p.client.committed(p.group, stable=True) == 5)
    return [*told, p.client.committed(p.group)]


def partitions(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init()]
    told += [sorted(p.client.add(PLAIN, ABSENT)), sorted(p.client.add(PLAIN, OWN))]
    told += [p.client.add(PLAIN), p.client.add(PLAIN), state_of(p)]
    other_epoch, p.client.epoch = p.client.epoch, 7
    told.append(p.client.add(PLAIN))
    p.client.epoch = other_epoch
    other_id, p.client.producer_id = p.client.producer_id, FAR
    told += [p.client.add(PLAIN), p.end_transaction()]
    p.client.producer_id = other_id
    return [*told, p.end_transaction(version=4), p.now[1]]


def unknown(p: Player, _: Player) -> list[Any]:
    p.client.producer_id, p.client.epoch = 77, 0
    told: list[Any] = [
        p.client.add(PLAIN),
        p.client.add_offsets(p.group),
        p.end_transaction(),
        p.offsets(),
    ]
    told.append(p.client.produce(PLAIN, b"x").name)
    p.client.transactional_id = ""
    told += [p.client.add(PLAIN), p.client.add_offsets(p.group), p.end_transaction(), p.init()]
    return told


def time_outs(p: Player, _: Player) -> list[Any]:
    return [p.init(timeout_ms=each) for each in (0, -1, 900_001, 900_000, 1)]


def not_added(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init()]
    told += [p.client.produce(PLAIN, b"x", version=version).name for version in (8, 10, 11)]
    return [*told, p.end_transaction(commit=False, version=4)]


def markers(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init(), p.init(), p.init(), p.begin_transaction()]

    def write(epoch: int, coordinator_epoch: int, version: int) -> list[str]:
        marker = WritableTxnMarker(
            producer_id=p.client.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
            topics=[WritableTxnMarkerTopic(name="plain", partition_indexes=[0])],
        )
        answer = p.client.caller.call(WriteTxnMarkersRequest(markers=[marker]), 2)
        rows = answer.markers[0].topics[0].partitions
        return [ErrorCode(row.error_code).name for row in rows]

    mine = p.client.epoch
    told += [write(mine - 1, 50, 0), write(mine, 50, 2), write(mine + 1, 50, 2)]
    told += [write(mine + 1, 50, 2), write(mine + 1, 49, 2), write(mine, 50, 2), write(mine, 51, 0)]
    return told


def lists(p: Player, _: Player) -> list[Any]:
    told: list[Any] = [p.init(), p.begin_transaction(), state_of(p)]

    def listed(**filters: Any) -> tuple[bool, list[str], int]:
        request = ListTransactionsRequest(**filters)
        answer = p.client.caller.call(request, 1)
        ids = [each.transactional_id for each in answer.transaction_states]
        return p.client.transactional_id in ids, answer.unknown_state_filters, answer.error_code

    told += [listed(), listed(state_filters=["Ongoing"]), listed(state_filters=["ongoing"])]
    told += [listed(state_filters=["Empty", "What"]), listed(duration_filter=3_600_000)]
    told += [
        listed(producer_id_filters=[p.client.producer_id]),
        listed(producer_id_filters=[FAR]),
    ]
    request = DescribeTransactionsRequest(transactional_ids=["nobody", ""])
    states = p.client.caller.call(request, 0).transaction_states
    return [*told, [each.error_code for each in states], p.end_transaction(commit=False)]


SCRIPTS: list[Script] = [
    nothing_begun,
    commit_and_again,
    abort_and_again,
    fenced,
    old_names_of_the_fence,
    its_own_epoch,
    timed_out,
    offsets,
    partitions,
    unknown,
    time_outs,
    not_added,
    markers,
    lists,
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[RawClient]:
    server = KafkaServer(NEWEST_KAFKA, properties=SWEEP)
    with server, RawClient(("127.0.0.1", server.port)) as client:
        yield _prepared(client)


@pytest.fixture(scope="module")
def klog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    broker = BrokerProcess(tmp_path_factory.mktemp("klog") / "data", SWEEP)
    with broker, RawClient(broker.address) as client:
        yield _prepared(client)


def _prepared(client: RawClient) -> RawClient:
    create_topic(client, "plain", partitions=1)
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, key="x")
        eventually(lambda r=request: client.call(r, 3).error_code == 0, 60)
    return client


def play(client: RawClient, script: Script, *, raises: bool) -> list[Any]:
    name = f"{script.__name__}-{raises}"
    players = [Player(client, f"{name}-{each}", raises=raises) for each in "ab"]
    for each in players:
        # The shard is loaded once it knows that nobody has used the id.
        eventually(lambda c=each.client: c.add_offsets("g") == UNKNOWN_ID)
    return script(*players)


@pytest.mark.parametrize("raises", [True, False], ids=["version-2", "version-0"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.__name__)
def test_both_brokers_answer_alike(
    kafka: RawClient, klog: RawClient, script: Script, raises: bool
) -> None:
    assert play(klog, script, raises=raises) == play(kafka, script, raises=raises)
