"""Responses of a cluster's broker before the controller has sent it the topics."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from klog_broker.api.alterable_topics import alterable_topic
from klog_broker.cluster.known_topics import PATIENCE_MS, TopicsFromController
from klog_broker.cluster.role_change_queue import ControllerRequestQueue
from klog_broker.metadata.image import CONSUMER_OFFSETS, ImageDraft
from klog_broker.topics.entries import ResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicId
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyspark_klog.protocol.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.support.cluster.broker import ME, MemoryBroker, answer_of, new_broker, topic_ids
from tests.support.cluster.leading_broker import OTHER, THIRD, FakeFollower, LeadingBroker
from tests.support.coordinator.transaction_client import broker_with_coordinators
from tests.support.log.harness import batch
from tests.support.raw_requests import produce_request
from tests.support.runtime.fake_network import FakeStream

LIFE = 70


class BrokerWithoutTopics:
    """A broker whose controller sends UpdateMetadata when the test says so."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.services = broker.broker.services
        self.orders = ControllerRequestQueue(lambda: LIFE)
        self.knows_by(self.orders)
        self._whole = self.services.metadata
        draft = ImageDraft(self._whole.image)
        for topic in list(self._whole.image.topics.values()):
            draft.forget(topic)
        shown: Any = SimpleNamespace(
            image=draft.image(), topic_configs=self._whole.topic_configs, close=self._whole.close
        )
        self.services.metadata = shown

    def knows_by(self, orders: ControllerRequestQueue) -> None:
        loop = self.broker.broker.loop
        self.services.known_topics = TopicsFromController(orders, frozenset, loop)

    def publish(self) -> None:
        self.services.metadata = self._whole
        self.broker.broker.loop.post(lambda: self.orders.note_full_metadata(0, LIFE))
        self.broker.turns()

    def send_metadata(self, *names: str | None, version: int = 12) -> FakeStream:
        """Send Metadata for these topics; None asks for all topics."""
        topics = [MetadataRequestTopic(name=each) for each in names]
        request = MetadataRequest(topics=None if None in names else topics)
        return self.broker.send(request, version)


@pytest.fixture
def world() -> BrokerWithoutTopics:
    return BrokerWithoutTopics(new_broker(with_kernel=False))


def codes(
    stream: FakeStream, version: int = 12, api_key: ApiKey = ApiKey.METADATA
) -> dict[str, ErrorCode] | None:
    """Return the topics' error codes; None while there is no response."""
    if not stream.sent:
        return None
    answer: Any = decode_response(bytes(stream.sent[4:]), api_key, version)
    return {each.name: ErrorCode(each.error_code) for each in answer.topics}


# --- clients that ask which topics there are ----------------------------------------------------
def test_metadata_of_a_topic_waits_for_update_metadata(world: BrokerWithoutTopics) -> None:
    stream = world.send_metadata("plain")
    world.broker.pass_time(PATIENCE_MS // 2)
    assert codes(stream) is None
    world.publish()
    assert codes(stream) == {"plain": ErrorCode.NONE}
    world.broker.pass_time(PATIENCE_MS)
    assert codes(world.send_metadata("plain")) == {"plain": ErrorCode.NONE}
    assert codes(world.send_metadata("none")) == {"none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(world.send_metadata("none")) == {"none": ErrorCode.NONE}, "it was made"
    assert world.orders.on_full_metadata == []


def test_a_topic_without_update_metadata_may_exist_and_is_not_created(
    world: BrokerWithoutTopics,
) -> None:
    stream = world.send_metadata("plain", "none")
    by_id = world.broker.send(
        MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_ids()["plain"])]), 12
    )
    world.broker.pass_time(PATIENCE_MS)
    unknown = ErrorCode.LEADER_NOT_AVAILABLE
    assert codes(stream) == {"plain": unknown, "none": unknown}
    assert list((codes(by_id) or {}).values()) == [unknown]
    world.publish()
    assert "none" not in world.services.metadata.image.topics
    assert world.orders.on_full_metadata == []


def test_a_late_answer_that_is_refused_says_so_as_one_in_time_does(
    world: BrokerWithoutTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "for the test")

    monkeypatch.setattr("klog_broker.api.metadata.create_topics", refuses)
    late = world.send_metadata("none")
    world.publish()
    assert codes(late) == {"none": ErrorCode.POLICY_VIOLATION}
    assert codes(world.send_metadata("none")) == {"none": ErrorCode.POLICY_VIOLATION}
    assert not late.is_closed


def test_known_topics_are_not_waited_for(world: BrokerWithoutTopics) -> None:
    world.publish()
    newer = ControllerRequestQueue(lambda: LIFE + 1)
    newer.note_full_metadata(0, LIFE)
    world.knows_by(newer)
    assert codes(world.send_metadata("plain")) == {"plain": ErrorCode.NONE}
    assert codes(world.send_metadata()) == {}
    # All topics that the image showed before.
    assert "plain" in (codes(world.send_metadata(None)) or {})
    assert codes(world.send_metadata("plain", "none")) is None


@pytest.mark.parametrize("version", [0, 12])
def test_metadata_of_all_topics_is_complete_or_delayed(
    world: BrokerWithoutTopics, version: int
) -> None:
    asks: list[Any] = [[] if version == 0 else [None]] * 2
    stream = world.send_metadata(*asks[0], version=version)
    world.broker.pass_time(PATIENCE_MS)
    assert (codes(stream, version), stream.is_closed) == (None, True)
    stream = world.send_metadata(*asks[1], version=version)
    world.publish()
    assert "plain" in (codes(stream, version) or {})


def test_a_described_topic_is_waited_for_and_never_denied(world: BrokerWithoutTopics) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="plain")])
    stream = world.broker.send(request, 0)
    world.broker.pass_time(PATIENCE_MS // 2)
    assert codes(stream, 0, ApiKey.DESCRIBE_TOPIC_PARTITIONS) is None
    world.broker.pass_time(PATIENCE_MS)
    answer = codes(stream, 0, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    assert answer == {"plain": ErrorCode.LEADER_NOT_AVAILABLE}
    of_all = world.broker.send(DescribeTopicPartitionsRequest(topics=[]), 0)
    wrong = world.broker.send(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="plain")], cursor=Cursor(topic_name="z", partition_index=0)
        ),
        0,
    )
    world.broker.pass_time(PATIENCE_MS)
    assert of_all.is_closed
    answer = codes(wrong, 0, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    assert answer == {"plain": ErrorCode.INVALID_REQUEST}
    stream = world.broker.send(request, 0)
    world.publish()
    answer = codes(stream, 0, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    assert answer == {"plain": ErrorCode.NONE}


def test_settings_of_topics_are_waited_for_and_those_of_brokers_not(
    world: BrokerWithoutTopics,
) -> None:
    def describe_configs(resource_type: ResourceType, name: str) -> FakeStream:
        asked = DescribeConfigsResource(resource_type=resource_type, resource_name=name)
        return world.broker.send(DescribeConfigsRequest(resources=[asked]), 4)

    def code(stream: FakeStream) -> ErrorCode | None:
        if not stream.sent:
            return None
        answer: Any = decode_response(bytes(stream.sent[4:]), ApiKey.DESCRIBE_CONFIGS, 4)
        return ErrorCode(answer.results[0].error_code)

    assert code(describe_configs(ResourceType.BROKER, "0")) is ErrorCode.NONE
    stream = describe_configs(ResourceType.TOPIC, "plain")
    assert code(stream) is None
    world.broker.pass_time(PATIENCE_MS)
    assert code(stream) is ErrorCode.LEADER_NOT_AVAILABLE
    stream = describe_configs(ResourceType.TOPIC, "plain")
    world.publish()
    assert code(stream) is ErrorCode.NONE


def test_alter_requests_deny_no_topic_that_may_exist(world: BrokerWithoutTopics) -> None:
    context: Any = None
    with pytest.raises(BrokerError) as refused:
        alterable_topic(world.services, context, ResourceType.TOPIC, "plain", [])
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    topic = DeleteRecordsTopic(name="plain", partitions=[partition])
    stream = world.broker.send(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
    answer: Any = decode_response(bytes(stream.sent[4:]), ApiKey.DELETE_RECORDS, 2)
    told = answer.topics[0].partitions[0].error_code
    assert told == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_controller_denies_no_topic_before_update_metadata(world: BrokerWithoutTopics) -> None:
    """A client that deletes a topic takes such a response for success, and the topic would stay."""
    grown = CreatePartitionsTopic(name="plain", count=9, assignments=None)
    grows = CreatePartitionsRequest(topics=[grown], validate_only=True)
    by_id = [DeleteTopicState(name=None, topic_id=topic_ids()["plain"])]
    by_name = DeleteTopicsRequest(topic_names=["plain"], timeout_ms=1_000)
    asked: list[tuple[Any, int]] = [
        (grows, 3),
        (DeleteTopicsRequest(topics=by_id, timeout_ms=1_000), 6),
        (by_name, 5),
    ]

    def told() -> list[ErrorCode | None]:
        found: list[ErrorCode | None] = []
        for stream, (request, version) in zip(streams, asked, strict=True):
            answer: Any = None
            if stream.sent:
                answer = decode_response(bytes(stream.sent[4:]), request.api_key, version)
                answer = answer.results if request is grows else answer.responses
            found.append(answer and ErrorCode(answer[0].error_code))
        return found

    streams = [world.broker.send(*each) for each in asked]
    assert told() == [None] * 3
    world.broker.pass_time(PATIENCE_MS)
    assert told() == [ErrorCode.NOT_CONTROLLER] * 3, "on which clients ask again"
    streams = [world.broker.send(*each) for each in asked]
    world.publish()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told() == [ErrorCode.NONE, ErrorCode.NONE, unknown], "the second one has deleted it"


# --- coordinators --------------------------------------------------------------------------------
def test_topics_of_coordinators_are_not_created_before_the_full_update(
    world: BrokerWithoutTopics,
) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0)
    answer = world.broker.call(request, 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "does not know yet" in answer.error_message
    world.publish()
    assert CONSUMER_OFFSETS not in world.services.metadata.image.topics


def test_offsets_of_unknown_partitions_are_to_be_sent_again() -> None:
    broker = broker_with_coordinators()
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="none", partitions=[OffsetCommitRequestPartition(partition_index=0)]
            )
        ],
    )
    in_transaction = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        topics=[
            TxnOffsetCommitRequestTopic(
                name="none", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
            )
        ],
    )

    def commit_errors() -> list[ErrorCode]:
        found = [broker.call(commit, 8), broker.call(in_transaction, 3)]
        return [ErrorCode(each.topics[0].partitions[0].error_code) for each in found]

    assert commit_errors() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    world = BrokerWithoutTopics(broker)
    assert commit_errors() == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    world.publish()
    assert commit_errors() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_of_a_recreated_topic_are_not_hidden_by_an_older_image(version: int) -> None:
    broker = broker_with_coordinators()
    services = broker.broker.services
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    topic = OffsetCommitRequestTopic(name="plain", partitions=rows)
    committed = broker.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    whole = services.metadata.image
    world = BrokerWithoutTopics(broker)
    # The image shows the earlier topic of this name, from the last controller.
    draft = ImageDraft(services.metadata.image)
    draft.put(replace(whole.topics["plain"], topic_id=TopicId(UUID(int=77))))
    draft.put(whole.topics[CONSUMER_OFFSETS])
    shown: Any = services.metadata
    shown.image = draft.image()

    def fetch() -> tuple[int, list[int]]:
        if version < 8:
            request = OffsetFetchRequest(group_id="g", topics=None)
        else:
            groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
            request = OffsetFetchRequest(groups=groups)
        answer = broker.call(request, version)
        found = answer if version < 8 else answer.groups[0]
        offsets = [row.committed_offset for each in found.topics for row in each.partitions]
        return found.error_code, offsets

    assert fetch() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    world.orders.note_full_metadata(0, LIFE)
    assert fetch() == (ErrorCode.NONE, [])
    world.publish()
    assert fetch() == (ErrorCode.NONE, [5])


def test_offsets_of_topics_without_known_ids_get_a_retriable_error() -> None:
    broker = broker_with_coordinators()
    services = broker.broker.services
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    topic = OffsetCommitRequestTopic(name="plain", partitions=rows)
    committed = broker.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    whole = services.metadata.image
    topic_id = whole.topics["plain"].topic_id
    world = BrokerWithoutTopics(broker)
    draft = ImageDraft(services.metadata.image)
    draft.put(whole.topics[CONSUMER_OFFSETS])
    shown: Any = services.metadata
    shown.image = draft.image()

    def fetch(topics: list[OffsetFetchRequestTopics] | None) -> list[tuple[int, int]]:
        group = OffsetFetchRequestGroup(group_id="g", topics=topics)
        (found,) = broker.call(OffsetFetchRequest(groups=[group]), 10).groups
        if found.error_code:
            return [(found.error_code, -1)]
        told = [each for topic in found.topics for each in topic.partitions]
        return [(each.error_code, each.committed_offset) for each in told]

    by_id = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])]
    assert fetch(by_id) == fetch(None) == [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)]
    world.orders.note_full_metadata(0, LIFE)
    assert fetch(by_id) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert fetch(None) == [], "it is deleted"
    world.publish()
    assert fetch(by_id) == fetch(None) == [(ErrorCode.NONE, 5)]


def test_partitions_without_update_metadata_may_be_led_elsewhere(
    world: BrokerWithoutTopics,
) -> None:
    request = produce_request("none", batch(), acks=1)

    def answer() -> ErrorCode:
        answer = world.broker.call(request, 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    assert answer() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.publish()
    assert answer() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- leaders -------------------------------------------------------------------------------------
def leading(**options: Any) -> LeadingBroker:
    """Roles have arrived, but the image shows no topic yet."""
    leader = LeadingBroker(**options)
    leader.lead(in_sync=(ME, OTHER, THIRD))
    BrokerWithoutTopics(leader.memory)
    return leader


def test_followers_are_served_by_the_topic_ids_of_leader_and_isr() -> None:
    leader = leading()
    leader.send(acks=1)
    follower = FakeFollower(leader, OTHER)
    assert follower.fetch(0).error_code == ErrorCode.NONE
    FakeFollower(leader, THIRD).fetch(1)
    follower.fetch(1)
    assert leader.log().high_watermark == 1


def test_a_leadership_that_is_over_is_known_by_no_id() -> None:
    leader = leading()
    leader.resign()
    answer = FakeFollower(leader, OTHER).fetch(0, leader_epoch=9)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("with_kernel", [False, True])
def test_a_recreated_topic_is_not_confused_with_the_deleted_one(with_kernel: bool) -> None:
    """Roles have arrived; the image shows the old topic with its id."""
    leader = LeadingBroker(with_kernel=with_kernel)
    before, epoch = leader.ids["plain"], leader.leader().leader_epoch
    newer = leader.memory.role_assignment("plain", leader_epoch=epoch, replicas=(ME, OTHER, THIRD))
    newer = replace(newer, topic_id=TopicId(UUID(int=7)), partition_epoch=0, is_new=True)
    leader.memory.apply(leader.memory.role_removal("plain"), newer)
    leader.send(acks=1)
    answer = FakeFollower(leader, OTHER).fetch(0, leader_epoch=epoch)
    assert (answer.error_code, answer.records) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")
    data = PartitionProduceData(index=0, records=bytearray(batch()))
    topic = TopicProduceData(topic_id=before, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
    answer = answer_of(leader.memory.send(request, 13), request, 13)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert leader.log().log_end_offset == 1


@pytest.mark.parametrize("with_kernel", [False, True])
def test_records_are_appended_by_the_topic_ids_of_leader_and_isr(with_kernel: bool) -> None:
    leader = leading(with_kernel=with_kernel)
    data = PartitionProduceData(index=0, records=bytearray(batch()))
    topic = TopicProduceData(topic_id=leader.ids["plain"], partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic])
    answer = answer_of(leader.memory.send(request, 13), request, 13)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert leader.log().log_end_offset == 1


def test_old_consumers_read_before_the_image_shows_the_topic() -> None:
    """The responses are converted, if the topic's settings allow that."""
    leader = leading()
    leader.send(acks=1)
    for number in (OTHER, THIRD):
        FakeFollower(leader, number).fetch(1)
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="plain", partitions=[row])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    stream = leader.memory.send(request, 3)
    leader.memory.turns()
    answer: Any = answer_of(stream, request, 3)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 1)
