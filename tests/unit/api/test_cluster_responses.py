"""Responses of a broker in a cluster about topics and brokers that are elsewhere."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.api import (
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    init_producer_id,
    metadata,
    offset_commit,
    offset_fetch,
)
from klog_broker.api.elect_leaders import ElectionServices
from klog_broker.api.offsets_in_zookeeper import OffsetsServices
from klog_broker.cluster.known_topics import AllTopicsKnown
from klog_broker.cluster.producer_id_blocks import ProducerIdBlocks
from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.cluster.topic_requests import TopicRequests
from klog_broker.config import BrokerConfig, Listener
from klog_broker.coordinator.hashing import partition_for_key
from klog_broker.coordinator_hosting.state_topics import AdvertisedAddress, CoordinatorFinder
from klog_broker.metadata.image import (
    CONSUMER_OFFSETS,
    NO_BROKER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    Topic,
)
from klog_broker.metadata.interface import ProducerIdBlock
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.resources.visible_partitions import SeenPartitions
from klog_broker.runtime.system.chance import Chance
from klog_broker.topics.planning import plan_new_topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, BrokerId, ProducerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsResponse
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

ONE, TWO, THREE, GONE = map(BrokerId, (1, 2, 3, 9))
IDS = iter(range(1, 1000))


def registered(number: BrokerId, *listeners: str) -> BrokerRegistration:
    endpoints = tuple(
        Listener(name, "PLAINTEXT", f"{name.lower()}{number}", 9092) for name in listeners
    )
    return BrokerRegistration(number, endpoints)


def state(leader: BrokerId, *replicas: BrokerId) -> PartitionRegistration:
    return PartitionRegistration(replicas or (leader,), replicas or (leader,), leader)


class ClusterBroker:
    """Broker 1 in a cluster of three, of which 3 has no listener for clients."""

    def __init__(self, *, controller: BrokerId = TWO, listener: str = "CLIENTS", **settings: Any):
        image = MetadataImage("c").with_controller(controller)
        for number in (ONE, TWO):
            image = image.with_broker(registered(number, "CLIENTS", "BROKERS"))
        image = image.with_broker(registered(THREE, "BROKERS"))
        config = {"zookeeper.connect": "z:2181", "broker.id": "1", **settings}
        self.asked: list[tuple[CreateTopicsRequest, Any]] = []
        self.soon: list[Any] = []
        self.answers: list[Any] = []
        loop: Any = SimpleNamespace(call_soon=self.soon.append)
        to_controller: Any = SimpleNamespace(send=self._send)
        self.requests = TopicRequests(lambda: self.broker.config, loop, to_controller)
        self.broker: Any = SimpleNamespace(
            config=BrokerConfig.load(None, config, data=Path("unused")),
            broker_id=ONE,
            metadata=SimpleNamespace(image=image, is_standalone=False),
            replicas=SimpleNamespace(partition=lambda *_: None),
            advertised={"CLIENTS": AdvertisedAddress("clients1", 9092)},
            chance=Chance(1),
            loop=loop,
            known_topics=AllTopicsKnown(),
            authorizer=ALLOWS_ALL,
            other_controller=lambda: None if controller == ONE else self.requests,
        )
        self.context: Any = SimpleNamespace(
            listener=listener,
            api_version=12,
            response_sink=SimpleNamespace(send=self.answers.append, send_in_slices=self._finish),
        )

    def _send(self, _class: Any, build: Any, done: Any, _timeout_ms: int) -> None:
        self.asked.append((build(7), done))

    def _finish(self, steps: Any) -> Any:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                if end.value is not None:
                    self.answers.append(end.value)
                return

    def shows(self, name: str, *states: PartitionRegistration) -> None:
        topic = Topic(name, TopicId(UUID(int=next(IDS))), states)
        self.broker.metadata.image = self.broker.metadata.image.with_topics([topic])

    def answer(self, handler: Any, request: Any, services: Any = None) -> Any:
        """``services``: the broker's, if the handler works with no others."""
        found = handler.handle(services or self.broker, request, self.context)
        if hasattr(found, "send"):
            self._finish(found)
        elif found is not None:
            self.answers.append(found)
        return self.answers.pop() if self.answers else None


def codes(told: ClusterBroker, *, hides: bool = False, names: bool = True) -> list[Any]:
    seen = SeenPartitions(told.broker, told.context, names_listeners=names, hides_replicas=hides)
    rows = [
        seen.partition("t", 0, state(TWO, TWO, ONE)),
        seen.partition("t", 1, state(TWO, TWO, GONE)),
        seen.partition("t", 2, state(TWO, TWO, THREE)),
        seen.partition("t", 3, state(THREE, THREE, TWO)),
        seen.partition("t", 4, state(GONE, GONE, TWO)),
        seen.partition("t", 5, state(NO_BROKER, TWO, ONE)),
    ]
    return [(each.leader_id, each.error_code, each.replica_nodes) for each in rows]


def test_leaders_are_those_that_the_client_can_reach() -> None:
    told = ClusterBroker()
    assert codes(told) == [
        (TWO, ErrorCode.NONE, [TWO, ONE]),
        (TWO, ErrorCode.NONE, [TWO, GONE]),
        (TWO, ErrorCode.NONE, [TWO, THREE]),
        (NO_BROKER, ErrorCode.LISTENER_NOT_FOUND, [THREE, TWO]),
        (NO_BROKER, ErrorCode.LEADER_NOT_AVAILABLE, [GONE, TWO]),
        (NO_BROKER, ErrorCode.LEADER_NOT_AVAILABLE, [TWO, ONE]),
    ]
    assert codes(told, names=False)[3][1] == ErrorCode.LEADER_NOT_AVAILABLE
    assert codes(ClusterBroker(listener="BROKERS"))[3][:2] == (THREE, ErrorCode.NONE)


def test_replicas_without_an_address_can_be_hidden() -> None:
    assert codes(ClusterBroker(), hides=True)[:4] == [
        (TWO, ErrorCode.NONE, [TWO, ONE]),
        (TWO, ErrorCode.REPLICA_NOT_AVAILABLE, [TWO]),
        (TWO, ErrorCode.REPLICA_NOT_AVAILABLE, [TWO]),
        (NO_BROKER, ErrorCode.LISTENER_NOT_FOUND, [TWO]),
    ]


def test_replicas_on_brokers_that_are_not_registered_are_offline() -> None:
    told = ClusterBroker()
    partitions = SeenPartitions(told.broker, told.context)
    seen = partitions.partition("t", 0, state(TWO, TWO, GONE, THREE))
    assert seen.offline_replicas == [GONE]


def test_replicas_that_the_controller_says_are_offline_are() -> None:
    told = ClusterBroker()
    shown = replace(state(TWO, TWO, GONE, ONE, THREE), offline=(ONE, GONE))
    seen = SeenPartitions(told.broker, told.context).partition("t", 0, shown)
    assert (seen.leader_id, seen.offline_replicas) == (TWO, [GONE, ONE])


@pytest.mark.parametrize(
    ("handler", "request_", "rows"),
    [
        (create_topics, CreateTopicsRequest(topics=[CreatableTopic(name="t")]), "topics"),
        (
            create_topics,
            CreateTopicsRequest(topics=[CreatableTopic(name="t")], validate_only=True),
            "topics",
        ),
        (
            create_partitions,
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]),
            "results",
        ),
        (delete_topics, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), "responses"),
    ],
)
def test_only_the_controller_changes_topics(handler: Any, request_: Any, rows: str) -> None:
    [row] = getattr(ClusterBroker().answer(handler, request_), rows)
    assert row.error_code == ErrorCode.NOT_CONTROLLER


# --- topics that clients name ---------------------------------------------------------------------
def named(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in names])


def made(done: Any, **results: ErrorCode) -> None:
    rows = [CreatableTopicResult(name=name, error_code=results[name]) for name in results]
    done(CreateTopicsResponse(topics=rows))


def test_a_missing_topic_is_made_by_the_controller() -> None:
    told = ClusterBroker(**{"num.partitions": "4", "default.replication.factor": "2"})
    assert told.answer(metadata, named("t", "not/legal")) is None
    [(request, done)] = told.asked
    [topic] = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 4, 2)
    told.shows("t", state(TWO))
    made(done, t=ErrorCode.NONE)
    [first] = told.answers
    assert [each.error_code for each in first.topics] == [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ], "as at Kafka, though the image shows the topic by now"
    again = told.answer(metadata, named("t"))
    assert [each.error_code for each in again.topics] == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
        (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12_345, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_error_for_a_topic_that_is_not_in_the_image(outcome: Any, code: ErrorCode) -> None:
    told = ClusterBroker()
    told.answer(metadata, named("t"))
    [(_, done)] = told.asked
    if outcome is None:
        done(None)
    else:
        made(done, t=outcome)
    assert [each.error_code for each in told.answers[0].topics] == [code]


def test_a_topic_is_asked_for_once_at_a_time() -> None:
    told = ClusterBroker()
    found: list[Any] = []
    for _ in range(2):
        told.requests.create(["t"], found.append)
    assert len(told.asked) == 1
    [later] = told.soon
    later()
    assert found == [{"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    told.asked[0][1](None)
    told.requests.create(["t"], found.append)
    assert len(told.asked) == 2


# --- coordinators -----------------------------------------------------------------------------
def finder(told: ClusterBroker, code: ErrorCode = ErrorCode.NONE) -> Any:
    made = CoordinatorFinder(told.broker, CONSUMER_OFFSETS, lambda _: code)
    told.broker.group_finder = made
    return made


def test_the_leader_of_the_keys_partition_is_the_coordinator() -> None:
    told = ClusterBroker()
    finds = finder(told)
    states = [state(TWO), state(ONE), state(THREE), state(GONE), state(NO_BROKER)]
    told.shows(CONSUMER_OFFSETS, *states)
    by_leader = {}
    for number in range(100):
        place = partition_for_key(f"group{number}", len(states))
        by_leader[states[place].leader] = finds.find(f"group{number}", told.context)
    assert by_leader.pop(TWO)[:4] == (ErrorCode.NONE, TWO, "clients2", 9092)
    assert by_leader.pop(ONE)[:4] == (ErrorCode.NONE, ONE, "clients1", 9092)
    assert {each.error_code for each in by_leader.values()} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert by_leader.keys() == {THREE, GONE, NO_BROKER}


def test_a_leader_that_does_not_serve_its_partition_is_no_coordinator() -> None:
    told = ClusterBroker()
    told.shows(CONSUMER_OFFSETS, state(ONE))
    found = finder(told, ErrorCode.NOT_COORDINATOR).find("group", told.context)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_controller_makes_the_coordinators_topic_with_all_its_replicas() -> None:
    told = ClusterBroker(**{"offsets.topic.num.partitions": "7"})
    finds = finder(told)
    for _ in range(2):
        found = finds.find("group", told.context)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    [(request, done)] = told.asked
    [topic] = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (CONSUMER_OFFSETS, 7, 3)
    assert {each.name: each.value for each in topic.configs}["cleanup.policy"] == "compact"
    done(None)
    finds.find("group", told.context)
    assert len(told.asked) == 2


def test_there_is_no_coordinator_before_there_are_brokers_enough() -> None:
    told = ClusterBroker(**{"offsets.topic.replication.factor": "4"})
    found = finder(told).find("group", told.context)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "4 replicas, expected 1 to " in found.message
    assert told.asked == []
    with pytest.raises(BrokerError) as refused:
        plan_new_topic(told.broker, CONSUMER_OFFSETS)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


# --- elections -----------------------------------------------------------------------------
class Elections:
    """Stands for the controller: responds with one outcome."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.asked: list[tuple[Any, bool, int]] = []

    def elect_leaders(self, partitions: Any, done: Any, *, unclean: bool, timeout_ms: int) -> None:
        self.asked.append((partitions, unclean, timeout_ms))
        done(self.outcome)


def elected(outcome: Any, request: ElectLeadersRequest) -> tuple[Elections, dict[Any, Any]]:
    told = ClusterBroker()
    told.shows("t", state(TWO), state(TWO))
    elections: Any = Elections(outcome)
    services = ElectionServices(told.broker.metadata, elections)
    answer = told.answer(elect_leaders.IN_CLUSTER, request, services)
    assert answer.error_code == ErrorCode.NONE
    return elections, {
        (topic.topic, row.partition_id): row.error_code
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


def test_the_controller_elects() -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    outcome = dict(zip(partitions, (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED), strict=True))
    some = [TopicPartitions(topic="t", partitions=[0, 1, 1])]
    request = ElectLeadersRequest(election_type=1, topic_partitions=some, timeout_ms=7)
    elections, found = elected(outcome, request)
    assert elections.asked == [(partitions, True, 7)]
    assert found == outcome
    _, found = elected(outcome, ElectLeadersRequest(topic_partitions=None))
    assert found == {("t", 0): ErrorCode.NONE}, "only those that had not the right leader"


@pytest.mark.parametrize("is_all", [False, True])
def test_each_partition_says_that_another_is_the_controller(is_all: bool) -> None:
    asked = None if is_all else [TopicPartitions(topic="t", partitions=[0, 1])]
    _, found = elected(ErrorCode.NOT_CONTROLLER, ElectLeadersRequest(topic_partitions=asked))
    assert found == dict.fromkeys([("t", 0), ("t", 1)], ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize("version", range(3))
def test_all_partitions_of_nothing_are_no_success(version: int) -> None:
    """A broker without UpdateMetadata knows no partition that could carry the error."""
    told = ClusterBroker()
    told.context.api_version = version
    elections: Any = Elections(ErrorCode.NOT_CONTROLLER)
    services = ElectionServices(told.broker.metadata, elections)
    request = ElectLeadersRequest(topic_partitions=None)
    answer = told.answer(elect_leaders.IN_CLUSTER, request, services)
    # The first version has no error but the partitions'.
    assert answer.error_code == (ErrorCode.NOT_CONTROLLER if version else ErrorCode.NONE)
    assert answer.replica_election_results == []


# --- producer ids -----------------------------------------------------------------------------
class Blocks:
    """Allocates blocks of producer ids when the test says so."""

    def __init__(self, size: int = 10) -> None:
        self.asked: list[Any] = []
        self._size = size
        self._first = 0

    def allocate_producer_ids(self, done: Any) -> None:
        self.asked.append(done)

    def give(self) -> None:
        block = ProducerIdBlock(ProducerId(self._first), ProducerId(self._first + self._size))
        self._first += 100
        self.asked.pop()(block)


@pytest.mark.parametrize(
    ("first", "count", "block"),
    [
        (0, 1_000, (0, 1_000)),
        (2**63 - 1_000, 1_000, (2**63 - 1_000, 2**63)),
        (2**63 - 1_000, 1_001, None),
        (2**63 - 1, 2**31 - 1, None),
        (-1, 1_000, None),
        (5, 0, None),
        (5, -1, None),
    ],
)
def test_a_block_is_taken_only_if_all_of_its_ids_are_some(
    first: int, count: int, block: tuple[int, int] | None
) -> None:
    reply = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=count)
    controller: Any = SimpleNamespace(send=lambda _class, _build, done, _ms: done(reply))
    got: list[Any] = []
    ProducerIdBlocks(controller, BrokerId(1), lambda: 5).allocate(got.append)
    assert [each if isinstance(each, tuple) else None for each in got] == [block]


def test_the_next_block_is_asked_for_before_this_one_is_used_up() -> None:
    blocks: Any = Blocks()
    ids = ProducerIds(blocks, prefetches=True)
    found: list[Any] = []
    ids.next_id(found.append)
    blocks.give()
    for _ in range(7):
        ids.next_id(found.append)
    assert found == list(range(8))
    assert blocks.asked == []
    ids.next_id(found.append)
    assert len(blocks.asked) == 1
    blocks.give()
    for _ in range(3):
        ids.next_id(found.append)
    assert found == [*range(10), 100, 101]
    assert blocks.asked == []


def test_the_first_block_is_there_before_anybody_needs_it() -> None:
    blocks: Any = Blocks()
    ids = ProducerIds(blocks, prefetches=True)
    ids.fetch_first()
    blocks.give()
    found: list[Any] = []
    ids.next_id(found.append)
    ids.fetch_first()
    assert (found, blocks.asked) == ([0], [])


def test_a_first_block_that_failed_is_requested_again_for_the_next_id() -> None:
    blocks: Any = Blocks()
    ids = ProducerIds(blocks, prefetches=True)
    ids.fetch_first()
    found: list[Any] = []
    ids.next_id(found.append)
    assert len(blocks.asked) == 1
    blocks.asked.pop()(RuntimeError("no controller"))
    ids.next_id(found.append)
    blocks.give()
    assert found == [None, 0]


def test_one_block_is_prefetched() -> None:
    blocks: Any = Blocks(100)
    ids = ProducerIds(blocks, prefetches=True)
    found: list[Any] = []
    ids.next_id(found.append)
    blocks.give()
    for _ in range(90):
        ids.next_id(found.append)
    blocks.give()
    for _ in range(19):
        ids.next_id(found.append)
    assert found == list(range(110))
    assert blocks.asked == []


def test_a_request_for_an_id_waits_for_a_block_and_fails_without_one() -> None:
    told = ClusterBroker()
    blocks: Any = Blocks()
    told.broker.producer_ids = ProducerIds(blocks, prefetches=True)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    assert told.answer(init_producer_id, request) is None
    blocks.asked.pop()(RuntimeError("no controller"))
    assert told.answers.pop().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    told.answer(init_producer_id, request)
    blocks.give()
    assert told.answers.pop().producer_id == 0


def test_a_failed_prefetch_is_tried_again() -> None:
    blocks: Any = Blocks()
    ids = ProducerIds(blocks, prefetches=True)
    found: list[Any] = []
    ids.next_id(found.append)
    blocks.give()
    for _ in range(8):
        ids.next_id(found.append)
    blocks.asked.pop()(RuntimeError("no controller"))
    ids.next_id(found.append)
    blocks.give()
    ids.next_id(found.append)
    assert found == [*range(10), 100]


# --- offsets in ZooKeeper ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "has_full_metadata, error",
    [
        (True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_version_0_denies_no_offset_before_the_full_update_metadata(
    has_full_metadata: bool, error: ErrorCode
) -> None:
    """A consumer without a committed offset starts from its reset policy."""
    told = ClusterBroker()
    told.context.api_version = 0
    told.broker.known_topics = SimpleNamespace(is_complete=has_full_metadata)
    offsets: Any = SimpleNamespace(
        fetch_offsets=lambda _group, partitions, done: done(dict.fromkeys(partitions)),
        commit_offsets=lambda _group, offsets, done: done(dict.fromkeys(offsets)),
    )
    services = OffsetsServices(told.broker, offsets)
    told.shows("t", state(TWO))
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    fetch = OffsetFetchRequest(group_id="g", topics=[asked])
    found = told.answer(offset_fetch.IN_CLUSTER, fetch, services)
    rows = [(each.error_code, each.committed_offset) for each in found.topics[0].partitions]
    assert rows == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (error, -1)]
    partitions = [OffsetCommitRequestPartition(partition_index=each) for each in (0, 1)]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    commit = OffsetCommitRequest(group_id="g", topics=[topic])
    found = told.answer(offset_commit.IN_CLUSTER, commit, services)
    assert [each.error_code for each in found.topics[0].partitions] == [ErrorCode.NONE, error]
