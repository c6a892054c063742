"""Waiting requests get the right error once this broker does not lead their partition."""

from collections.abc import Callable
from typing import Any

import pytest

from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.fetch import FetchRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest
from pyspark_klog.protocol.apis.produce import ProduceRequest
from tests.support.api.session_client import SessionClient, partition_rows
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker, topic_ids
from tests.support.raw_requests import batch, fetch_request, produce_request
from tests.support.runtime.fake_network import FakeStream

ME, OTHER = BrokerId(0), BrokerId(1)
BOTH = (ME, OTHER)
FETCH, PRODUCE, COMMIT, JOIN = 12, 9, 7, 3
LONG_MS = 600_000
OFFSETS = "__consumer_offsets"


@pytest.fixture
def broker() -> MemoryBroker:
    """Broker 1, which nobody has ever heard of, is in sync in `plain`, too."""
    broker = new_broker(with_kernel=False)
    broker.assign("plain", replicas=BOTH)
    return broker


def produce(broker: MemoryBroker, topic: str = "plain") -> FakeStream:
    request = produce_request(topic, batch(b"x"), acks=-1, timeout_ms=LONG_MS)
    return broker.send(request, PRODUCE)


def produced(stream: FakeStream) -> int:
    answer = answer_of(stream, ProduceRequest(), PRODUCE)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetched(stream: FakeStream) -> Any:
    return answer_of(stream, FetchRequest(), FETCH).responses[0].partitions[0]


def resign(broker: MemoryBroker, topic: str) -> None:
    epoch = broker.broker.services.replicas.led[(topic, 0)].leader_epoch + 1
    broker.assign(topic, leader=OTHER, leader_epoch=epoch, replicas=BOTH)


def begin_another_epoch(broker: MemoryBroker, topic: str) -> None:
    epoch = broker.broker.services.replicas.led[(topic, 0)].leader_epoch + 1
    broker.assign(topic, leader_epoch=epoch, replicas=BOTH)


def stop(broker: MemoryBroker, topic: str) -> None:
    """Send StopReplica, as a controller does whose next UpdateMetadata comes later."""
    broker.apply(broker.role_removal(topic))


def delete(broker: MemoryBroker, topic: str) -> None:
    answer = broker.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    assert answer.responses[0].error_code == 0


def lose_the_disk(broker: MemoryBroker, _: str) -> None:
    broker.broker.services.logs.on_directory_offline = None  # the broker would end
    broker.files.fail_sync_at = broker.files.syncs + 1
    broker.send(produce_request("flushed", batch(b"x"), acks=0), PRODUCE)


Ending = Callable[[MemoryBroker, str], None]
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
ENDINGS = [
    (resign, NOT_LEADER),
    (stop, NOT_LEADER),
    (delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lose_the_disk, ErrorCode.KAFKA_STORAGE_ERROR),
]


@pytest.mark.parametrize(("end", "code"), ENDINGS)
def test_a_produce_that_waits_for_followers_gets_an_error(
    broker: MemoryBroker, end: Ending, code: ErrorCode
) -> None:
    stream = produce(broker)
    assert not stream.sent
    end(broker, "plain")
    assert produced(stream) == code


def test_a_produce_that_waits_for_others_waits_on_in_the_next_epoch(broker: MemoryBroker) -> None:
    """Kafka 3.9.1's leader does the same when a follower dies: it was seen to answer 0."""
    stream = produce(broker)
    begin_another_epoch(broker, "plain")
    assert not stream.sent
    broker.assign("plain")
    assert produced(stream) == 0


@pytest.mark.parametrize(("end", "code"), ENDINGS)
def test_a_fetch_that_waits_for_data_gets_an_error(
    broker: MemoryBroker, end: Ending, code: ErrorCode
) -> None:
    stream = broker.send(fetch_request("plain", max_wait_ms=LONG_MS), FETCH)
    assert not stream.sent
    end(broker, "plain")
    assert fetched(stream).error_code == code
    again = broker.send(fetch_request("plain", max_wait_ms=LONG_MS), FETCH)
    assert fetched(again).error_code == code


def test_a_fetch_that_knows_no_epoch_waits_on_in_the_next_one(broker: MemoryBroker) -> None:
    stream = broker.send(fetch_request("plain", max_wait_ms=LONG_MS), FETCH)
    begin_another_epoch(broker, "plain")
    assert not stream.sent
    broker.assign("plain")
    assert produced(produce(broker)) == 0
    assert fetched(stream).high_watermark == 1


def test_a_waiting_fetch_of_an_older_epoch_is_fenced(broker: MemoryBroker) -> None:
    """No other broker leads: the client asks for the new epoch, and comes back here."""
    request = fetch_request("plain", max_wait_ms=LONG_MS, current_leader_epoch=0)
    stream = broker.send(request, FETCH)
    assert not stream.sent
    begin_another_epoch(broker, "plain")
    assert fetched(stream).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", [12, 13])
def test_a_session_waits_on_in_the_next_epoch(broker: MemoryBroker, version: int) -> None:
    topic = topic_ids()["plain"] if version >= 13 else "plain"
    client = SessionClient(broker, version)
    client.begin_session({(topic, 0): 0})
    client.send({}, 1, max_wait_ms=LONG_MS)
    begin_another_epoch(broker, "plain")
    assert not client.has_answer()
    broker.assign("plain")
    assert produced(produce(broker)) == 0
    (row,) = partition_rows(client.answer()).values()
    assert (row.error_code, row.high_watermark) == (0, 1)


def test_a_set_that_shrank_below_the_least_waits_for_others(broker: MemoryBroker) -> None:
    """The watermark does not move meanwhile, as in Kafka (KIP-966)."""
    topic = "two-in-sync"
    broker.assign(topic, replicas=BOTH)
    stream = produce(broker, topic)
    broker.assign(topic, replicas=BOTH, in_sync=(ME,))
    assert not stream.sent
    assert produced(produce(broker, topic)) == ErrorCode.NOT_ENOUGH_REPLICAS
    broker.clock.advance(LONG_MS)
    broker.broker.loop.run_turn(0)
    assert produced(stream) == ErrorCode.REQUEST_TIMED_OUT


def test_an_isr_that_shrank_after_the_append_fails_with_not_enough_replicas_after_append(
    broker: MemoryBroker,
) -> None:
    topic = "two-in-sync"
    broker.assign(topic, replicas=BOTH)
    stream = produce(broker, topic)
    replicas = broker.broker.services.replicas
    shrunk = broker.role_assignment(topic, replicas=BOTH, in_sync=(ME,))

    def in_one_turn() -> None:
        replicas.led[(topic, 0)].fetched(OTHER, FollowerFetch(1))
        replicas.apply([shrunk], lambda _: None)

    broker.broker.loop.post(in_one_turn)
    broker.turns()
    assert produced(stream) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_metadata_lists_an_offline_replica(broker: MemoryBroker) -> None:
    lose_the_disk(broker, "plain")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="plain")])
    (topic,) = broker.call(request, 9).topics
    assert {each.error_code for each in topic.partitions} == {ErrorCode.LEADER_NOT_AVAILABLE}
    assert {each.leader_id for each in topic.partitions} == {-1}
    assert [each.offline_replicas for each in topic.partitions] == [[ME]] * 3


# --- coordinators --------------------------------------------------------------------------------
@pytest.fixture
def groups() -> MemoryBroker:
    """A broker whose offsets topic needs two in-sync replicas for a commit, and has two."""
    broker = new_broker(with_kernel=False, offsets_topic_num_partitions=1)
    least = CreatableTopicConfig(name="min.insync.replicas", value="2")
    topic = CreatableTopic(name=OFFSETS, num_partitions=1, replication_factor=1, configs=[least])
    assert broker.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    assert broker.call(FindCoordinatorRequest(key="g"), 3).error_code == 0
    assert committed(commit(broker, 5)) == 0
    broker.assign(OFFSETS, replicas=BOTH)
    return broker


def commit(broker: MemoryBroker, offset: int) -> FakeStream:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="plain", partitions=[row])]
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return broker.send(request, COMMIT)


def committed(stream: FakeStream) -> int:
    answer = answer_of(stream, OffsetCommitRequest(), COMMIT)
    return int(answer.topics[0].partitions[0].error_code)


def offset_of(broker: MemoryBroker) -> int:
    answer = broker.call(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert answer.error_code == 0
    return int(answer.topics[0].partitions[0].committed_offset)


def join(broker: MemoryBroker) -> FakeStream:
    request = JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=LONG_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return broker.send(request, JOIN)


COORDINATOR_ENDINGS = [resign, stop, lose_the_disk]


@pytest.mark.parametrize("end", COORDINATOR_ENDINGS)
def test_a_commit_that_waits_for_followers_gets_an_error(groups: MemoryBroker, end: Ending) -> None:
    stream = commit(groups, 6)
    assert not stream.sent
    end(groups, OFFSETS)
    assert committed(stream) == ErrorCode.NOT_COORDINATOR
    assert committed(commit(groups, 7)) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("end", COORDINATOR_ENDINGS)
def test_a_member_that_waits_for_others_gets_an_error(groups: MemoryBroker, end: Ending) -> None:
    stream = join(groups)
    assert not stream.sent
    end(groups, OFFSETS)
    assert answer_of(stream, JoinGroupRequest(), JOIN).error_code == ErrorCode.NOT_COORDINATOR


def test_a_commit_needs_enough_in_sync(groups: MemoryBroker) -> None:
    groups.assign(OFFSETS, replicas=BOTH, in_sync=(ME,))
    assert committed(commit(groups, 6)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert offset_of(groups) == 5
    groups.assign(OFFSETS)
    assert committed(commit(groups, 6)) == 0
    assert offset_of(groups) == 6


def test_the_next_leadership_loads_what_the_last_one_left(groups: MemoryBroker) -> None:
    resign(groups, OFFSETS)
    groups.assign(OFFSETS, leader_epoch=2)
    assert offset_of(groups) == 5
    assert committed(commit(groups, 8)) == 0
    assert offset_of(groups) == 8
