"""Requests that name thousands of things: others are served meanwhile, and too many are refused."""

from typing import Any

import pytest

from klog_broker.dispatch.api_handler import MAX_REQUEST_ELEMENTS
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis import create_partitions as more_partitions
from pyspark_klog.protocol.apis import (
    create_topics,
    delete_groups,
    delete_topics,
    describe_groups,
    offset_delete,
)
from pyspark_klog.protocol.apis import describe_configs as configs
from pyspark_klog.protocol.apis import fetch as fetches
from pyspark_klog.protocol.apis import incremental_alter_configs as alter
from pyspark_klog.protocol.apis import leave_group as leaving
from pyspark_klog.protocol.apis import list_offsets as offsets
from pyspark_klog.protocol.apis import metadata as topics
from pyspark_klog.protocol.apis import offset_commit as commits
from pyspark_klog.protocol.apis import offset_fetch as committed
from pyspark_klog.protocol.apis import offset_for_leader_epoch as epochs
from pyspark_klog.protocol.apis import produce as produces
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.message import Request
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker
from tests.support.cluster.server import know_topics
from tests.support.runtime.fake_network import FakeStream

MANY = 10_000
"""Topics that are in the metadata, `many-N`; only `plain` has logs."""


@pytest.fixture(scope="module")
def broker() -> MemoryBroker:
    broker = new_broker(
        with_kernel=False, offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0
    )
    for _ in range(2):
        broker.call(FindCoordinatorRequest(key="g"), 3)
    know_topics(broker.broker, [f"many-{number}" for number in range(MANY)])
    kept = commit(["plain"])
    kept.group_id = "kept"
    broker.call(kept, 2)
    return broker


def names(count: int = MANY) -> list[str]:
    """Return the names of existing topics, `plain` the last."""
    return [*(f"many-{number}" for number in range(count - 1)), "plain"]


def list_offsets(of: list[str], timestamp: int = -1) -> offsets.ListOffsetsRequest:
    row = offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    listed = [offsets.ListOffsetsTopic(name=name, partitions=[row]) for name in of]
    return offsets.ListOffsetsRequest(replica_id=-1, topics=listed)


def commit(of: list[str], offset: int = 7) -> commits.OffsetCommitRequest:
    row = commits.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    listed = [commits.OffsetCommitRequestTopic(name=name, partitions=[row]) for name in of]
    return commits.OffsetCommitRequest(group_id="g", topics=listed)


def fetch_offsets(of: list[str]) -> committed.OffsetFetchRequest:
    listed = [committed.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in of]
    return committed.OffsetFetchRequest(group_id="g", topics=listed)


def end_of_epochs(of: list[str]) -> epochs.OffsetForLeaderEpochRequest:
    row = epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    listed = [epochs.OffsetForLeaderTopic(topic=name, partitions=[row]) for name in of]
    return epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=listed)


def describe_topics(of: list[str]) -> topics.MetadataRequest:
    listed = [topics.MetadataRequestTopic(name=name) for name in of]
    return topics.MetadataRequest(topics=listed, allow_auto_topic_creation=False)


def describe_configs(of: list[str], *keys: str) -> configs.DescribeConfigsRequest:
    listed = [
        configs.DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=list(keys) or None
        )
        for name in of
    ]
    return configs.DescribeConfigsRequest(resources=listed)


def alter_configs(of: list[str]) -> alter.IncrementalAlterConfigsRequest:
    row = alter.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    return alter.IncrementalAlterConfigsRequest(
        resources=[
            alter.AlterConfigsResource(resource_type=2, resource_name=name, configs=[row])
            for name in of
        ],
        validate_only=True,
    )


def create(of: list[str]) -> create_topics.CreateTopicsRequest:
    listed = [
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in of
    ]
    return create_topics.CreateTopicsRequest(topics=listed, timeout_ms=1000)


def grow(of: list[str], count: int = 1) -> more_partitions.CreatePartitionsRequest:
    listed = [
        more_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
        for name in of
    ]
    return more_partitions.CreatePartitionsRequest(topics=listed, timeout_ms=1000)


def leave(of: list[str]) -> leaving.LeaveGroupRequest:
    listed = [leaving.MemberIdentity(member_id=name) for name in of]
    return leaving.LeaveGroupRequest(group_id="g", members=listed)


def delete(of: list[str]) -> delete_topics.DeleteTopicsRequest:
    return delete_topics.DeleteTopicsRequest(topic_names=of, timeout_ms=1000)


def find(of: list[str]) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=of)


def groups(of: list[str]) -> describe_groups.DescribeGroupsRequest:
    return describe_groups.DescribeGroupsRequest(groups=of)


def forget(of: list[str]) -> offset_delete.OffsetDeleteRequest:
    row = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    listed = [offset_delete.OffsetDeleteRequestTopic(name=name, partitions=[row]) for name in of]
    return offset_delete.OffsetDeleteRequest(group_id="kept", topics=listed)


THERE, GONE = names(), [f"gone-{number}" for number in range(MANY)]

# Request, version, and the response's list of the requested items.
LONG: dict[str, tuple[Request, int, str]] = {
    "metadata": (describe_topics(THERE), 9, "topics"),
    "metadata of all": (topics.MetadataRequest(topics=None), 9, "topics"),
    "metadata of unknown": (describe_topics(GONE), 9, "topics"),
    "list offsets": (list_offsets(THERE), 7, "topics"),
    "list offsets by time": (list_offsets(THERE, timestamp=5), 7, "topics"),
    "offset commit": (commit(THERE), 7, "topics"),
    "offset fetch": (fetch_offsets(THERE), 5, "topics"),
    "leader epochs": (end_of_epochs(THERE), 4, "topics"),
    "describe configs": (describe_configs(THERE, "compression.type"), 4, "results"),
    "alter configs": (alter_configs(THERE), 1, "responses"),
    "create topics": (create(THERE), 5, "topics"),
    "create partitions": (grow(THERE), 3, "results"),
    "delete topics": (delete(GONE), 5, "responses"),
    "find coordinator": (find(GONE), 4, "coordinators"),
    "describe groups": (groups(GONE), 3, "groups"),
    "leave group": (leave(GONE), 3, "members"),
    "delete groups": (delete_groups.DeleteGroupsRequest(groups_names=GONE), 2, "results"),
    "offset delete": (forget(THERE), 0, "topics"),
}


def put(stream: FakeStream, request: Request, version: int) -> None:
    stream.inbox += encode_request(RequestHeader(request.api_key, version, 1, "c"), request)


def receive_request(
    broker: MemoryBroker, stream: FakeStream, request: Request, version: int
) -> None:
    """Run turns until the whole request has been received."""
    put(stream, request, version)
    while stream.inbox:
        broker.broker.loop.run_turn(0)


@pytest.mark.parametrize("case", LONG)
def test_others_are_answered_before_a_long_request_is(broker: MemoryBroker, case: str) -> None:
    request, version, field = LONG[case]
    long, other, small = (broker.connect() for _ in range(3))
    receive_request(broker, long, request, version)
    put(other, HeartbeatRequest(group_id="g", member_id="m"), 3)
    put(small, describe_topics(["plain"]), 9)
    for _ in range(2):
        broker.broker.loop.run_turn(0)
    assert other.sent
    assert small.sent
    assert not long.sent
    broker.turns()
    things = getattr(answer_of(long, request, version), field)
    assert len(things) == MANY or (case == "metadata of all" and len(things) > MANY)


def call_long(broker: MemoryBroker, case: str) -> list[Any]:
    request, version, field = LONG[case]
    answer = broker.call(request, version)
    found: list[Any] = getattr(answer, field)
    return found


def test_metadata_of_many_topics_is_right(broker: MemoryBroker) -> None:
    found = call_long(broker, "metadata")
    assert [topic.name for topic in found] == THERE
    assert {len(topic.partitions) for topic in found[:-1]} == {1}
    assert [p.partition_index for p in found[-1].partitions] == [0, 1, 2]
    everything = {topic.name: topic for topic in call_long(broker, "metadata of all")}
    assert [everything[name] for name in THERE] == found


def test_one_topic_of_many_partitions_is_described_whole(broker: MemoryBroker) -> None:
    know_topics(broker.broker, ["wide"], partitions=MANY)
    (topic,) = broker.call(describe_topics(["wide"]), 9).topics
    assert [p.partition_index for p in topic.partitions] == list(range(MANY))


@pytest.mark.parametrize("case", ["list offsets", "list offsets by time", "leader epochs"])
def test_answers_about_many_partitions_are_each_its_own(broker: MemoryBroker, case: str) -> None:
    found = call_long(broker, case)
    assert [getattr(topic, "name", None) or topic.topic for topic in found] == THERE
    codes = [topic.partitions[0].error_code for topic in found]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (MANY - 1) + [ErrorCode.NONE]


def test_many_offsets_are_committed_and_fetched(broker: MemoryBroker) -> None:
    request = commit([*THERE, "gone"], offset=3)
    answer = broker.call(request, 7)
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [ErrorCode.NONE] * MANY + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    found = call_long(broker, "offset fetch")
    assert [topic.name for topic in found] == THERE
    assert {topic.partitions[0].committed_offset for topic in found} == {3}
    all_of_them = committed.OffsetFetchRequest(group_id="g", topics=None)
    told = broker.call(all_of_them, 5).topics
    assert {(topic.name, topic.partitions[0].committed_offset) for topic in told} == {
        (name, 3) for name in THERE
    }


def test_settings_of_many_topics_are_each_its_own(broker: MemoryBroker) -> None:
    (alone,) = broker.call(describe_configs(["stored-as-lz4"]), 4).results
    some = [*THERE[-100:], "stored-as-lz4"]
    found = broker.call(describe_configs(some), 4).results
    assert [result.resource_name for result in found] == some
    assert found[-1] == alone
    assert found[0].configs == found[-2].configs != found[-1].configs
    values = [[row.value for row in each.configs] for each in call_long(broker, "describe configs")]
    assert values == [["producer"]] * MANY
    two = describe_configs(["plain", "stored-as-lz4"], "compression.type")
    two.resources.append(two.resources[0].__class__(resource_type=4, resource_name="0"))
    two.resources[2].configuration_keys = ["num.partitions"]
    found = broker.call(two, 4).results
    assert [[row.value for row in each.configs] for each in found] == [["producer"], ["lz4"], ["1"]]


def test_every_refused_topic_has_its_error(broker: MemoryBroker) -> None:
    for case, code in (
        ("create topics", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("create partitions", ErrorCode.INVALID_PARTITIONS),
        ("delete topics", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("leave group", ErrorCode.UNKNOWN_MEMBER_ID),
        ("alter configs", ErrorCode.NONE),
        ("find coordinator", ErrorCode.NONE),
        ("metadata of unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        found = call_long(broker, case)
        codes = [each.error_code for each in found]
        if case == "create partitions":
            codes.pop()  # `plain` has three partitions, so it gets another error of this code
        assert set(codes) == {code}, case


def test_a_disconnected_client_leaves_nothing_to_do(broker: MemoryBroker) -> None:
    long, loop = broker.connect(), broker.broker.loop
    receive_request(broker, long, describe_topics(GONE), 9)
    assert loop.next_wake_ms() == loop.now_ms()
    long.is_at_end = True
    for _ in range(2):
        loop.run_turn(0)
    assert loop.next_wake_ms() != loop.now_ms()
    assert not long.sent


TOO_MANY = [f"gone-{number}" for number in range(MAX_REQUEST_ELEMENTS + 1)]

PAST_THE_BOUND: dict[str, tuple[Request, int]] = {
    "metadata": (describe_topics(TOO_MANY), 9),
    "create topics": (create(TOO_MANY), 5),
    "offset commit": (commit(["plain", *TOO_MANY[:15_000]], offset=99), 7),
    "tagged fields": (
        topics.MetadataRequest(
            topics=[], unknown_tagged_fields=dict.fromkeys(range(1, 30_002), b"")
        ),
        9,
    ),
    "fetch": (
        fetches.FetchRequest(
            topics=[
                fetches.FetchTopic(
                    topic="plain",
                    partitions=[fetches.FetchPartition(partition=n) for n in range(30_000)],
                )
            ]
        ),
        11,
    ),
    "produce": (
        produces.ProduceRequest(
            acks=1,
            topic_data=[
                produces.TopicProduceData(
                    name="gone",
                    partition_data=[
                        produces.PartitionProduceData(index=n, records=b"") for n in range(30_000)
                    ],
                )
            ],
        ),
        7,
    ),
}


@pytest.mark.parametrize("case", PAST_THE_BOUND)
def test_past_the_bound_the_connection_is_closed_and_nothing_done(
    broker: MemoryBroker, case: str
) -> None:
    before = broker.broker.services.metadata.image.version
    told = broker.call(fetch_offsets(["plain"]), 5)
    stream = broker.send(*PAST_THE_BOUND[case])
    assert stream.is_closed
    assert not stream.sent
    assert broker.broker.services.metadata.image.version == before
    assert broker.call(fetch_offsets(["plain"]), 5) == told


def test_tagged_fields_of_a_header_are_bounded(broker: MemoryBroker) -> None:
    stream = broker.connect()
    request = topics.MetadataRequest(topics=[])
    tags = dict.fromkeys(range(1001), b"")
    header = RequestHeader(request.api_key, 9, 1, "c", tags)
    stream.inbox += encode_request(header, request)
    broker.turns()
    assert stream.is_closed


def test_many_small_topics_may_not_grow_beyond_what_one_request_creates(
    broker: MemoryBroker,
) -> None:
    answer = broker.call(grow(THERE[:3], count=4_000), 3)
    assert {each.error_code for each in answer.results} == {ErrorCode.POLICY_VIOLATION}


def test_a_member_offers_a_hundred_assignors_at_most(broker: MemoryBroker) -> None:
    for count, code in ((100, ErrorCode.NONE), (101, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)):
        request = JoinGroupRequest(
            group_id=f"g{count}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=f"p{n}") for n in range(count)],
        )
        assert broker.call(request, 3).error_code == code


def test_many_changes_of_one_topic_are_refused(broker: MemoryBroker) -> None:
    changes = [alter.AlterableConfig(name=f"x{n}", config_operation=1) for n in range(1001)]
    topic = alter.AlterConfigsResource(resource_type=2, resource_name="plain", configs=changes)
    (answer,) = broker.call(alter.IncrementalAlterConfigsRequest(resources=[topic]), 1).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "at most 1000 changes" in answer.error_message


def test_topics_made_by_one_request_are_stored_by_one_write() -> None:
    broker = new_broker(with_kernel=False)
    before = broker.broker.services.metadata.image.version
    request = topics.MetadataRequest(
        topics=[topics.MetadataRequestTopic(name=f"new-{n}") for n in range(50)],
        allow_auto_topic_creation=True,
    )
    found = broker.call(request, 9).topics
    assert {topic.error_code for topic in found} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    found = broker.call(request, 9).topics
    assert {topic.error_code for topic in found} == {ErrorCode.NONE}
    assert broker.broker.services.metadata.image.version == before + 1
    assert broker.call(create([f"made-{n}" for n in range(50)]), 5).topics[49].error_code == 0
    assert broker.broker.services.metadata.image.version == before + 2


def put_records(
    broker: MemoryBroker, partition: int, timestamps_ms: list[int], codec: Codec
) -> None:
    builder = BatchBuilder(codec=codec)
    for timestamp_ms in timestamps_ms:
        builder.append(None, b"", timestamp_ms)
    data = produces.PartitionProduceData(index=partition, records=builder.build())
    topic = produces.TopicProduceData(name="plain", partition_data=[data])
    request = produces.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
    (answer,) = broker.call(request, 7).responses
    assert answer.partition_responses[0].error_code == ErrorCode.NONE


def test_a_long_look_up_by_time_runs_in_a_helper() -> None:
    broker = new_broker(with_kernel=False)
    put_records(broker, 0, [100, 200, 300], Codec.GZIP)
    put_records(broker, 1, list(range(1001)), Codec.NONE)
    put_records(broker, 2, [100, 200, 300], Codec.NONE)
    request = offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            offsets.ListOffsetsTopic(
                name="plain",
                partitions=[
                    offsets.ListOffsetsPartition(partition_index=number, timestamp=150)
                    for number in range(3)
                ],
            )
        ],
    )
    stream = broker.connect()
    broker.helpers.is_held = True
    put(stream, request, 7)
    broker.turns()
    assert not stream.sent
    broker.helpers.release()
    broker.turns()
    (topic,) = answer_of(stream, request, 7).topics
    found = [(each.partition_index, each.offset, each.timestamp) for each in topic.partitions]
    assert found == [(0, 1, 200), (1, 150, 150), (2, 1, 200)]
    assert broker.broker.services.requests.counters["cold-look-ups"] == 2
