"""Admin requests that name thousands of things: others are served meanwhile."""

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis import alter_configs as altering
from pyspark_klog.protocol.apis import alter_partition_reassignments as moving
from pyspark_klog.protocol.apis import delete_records as deleting
from pyspark_klog.protocol.apis import describe_log_dirs as directories
from pyspark_klog.protocol.apis import describe_topic_partitions as paging
from pyspark_klog.protocol.apis import describe_user_scram_credentials as credentials
from pyspark_klog.protocol.apis import elect_leaders as electing
from pyspark_klog.protocol.apis import list_config_resources as resources
from pyspark_klog.protocol.apis import metadata as topics
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import TOPICS, MemoryBroker, answer_of, new_broker
from tests.support.cluster.server import know_topics
from tests.support.runtime.fake_network import FakeStream

MANY = 10_000
"""Topics that are in the metadata, `many-N`; only those of ``TOPICS`` have logs."""
THERE = [f"many-{number}" for number in range(MANY - 1)] + ["plain"]
GONE = [f"gone-{number}" for number in range(MANY)]


@pytest.fixture(scope="module")
def broker() -> MemoryBroker:
    broker = new_broker(with_kernel=False)
    know_topics(broker.broker, [f"many-{number}" for number in range(MANY)])
    return broker


def delete(of: list[str]) -> deleting.DeleteRecordsRequest:
    row = deleting.DeleteRecordsPartition(partition_index=0, offset=-1)
    listed = [deleting.DeleteRecordsTopic(name=name, partitions=[row]) for name in of]
    return deleting.DeleteRecordsRequest(topics=listed)


def pages(of: list[str]) -> paging.DescribeTopicPartitionsRequest:
    return paging.DescribeTopicPartitionsRequest(
        topics=[paging.TopicRequest(name=name) for name in of]
    )


def alter(of: list[str]) -> altering.AlterConfigsRequest:
    row = altering.AlterableConfig(name="retention.ms", value="1")
    listed = [
        altering.AlterConfigsResource(resource_type=2, resource_name=name, configs=[row])
        for name in of
    ]
    return altering.AlterConfigsRequest(resources=listed, validate_only=True)


def elect(of: list[str]) -> electing.ElectLeadersRequest:
    listed = [electing.TopicPartitions(topic=name, partitions=[0]) for name in of]
    return electing.ElectLeadersRequest(topic_partitions=listed)


def move(of: list[str]) -> moving.AlterPartitionReassignmentsRequest:
    row = moving.ReassignablePartition(partition_index=0, replicas=[77])
    listed = [moving.ReassignableTopic(name=name, partitions=[row]) for name in of]
    return moving.AlterPartitionReassignmentsRequest(topics=listed)


def users(of: list[str]) -> credentials.DescribeUserScramCredentialsRequest:
    return credentials.DescribeUserScramCredentialsRequest(
        users=[credentials.UserName(name=name) for name in of]
    )


# Request, version, the response's list of items, and the number of items.
ALL = MANY + len(TOPICS)
LONG: dict[str, tuple[Request, int, str, int]] = {
    "delete records": (delete(THERE), 2, "topics", MANY),
    "pages": (
        pages(THERE),
        0,
        "topics",
        paging.DescribeTopicPartitionsRequest().response_partition_limit,
    ),
    "pages of unknown": (pages(GONE), 0, "topics", MANY),
    "pages of all": (pages([]), 0, "topics", 2000),
    "alter configs": (alter(THERE), 2, "responses", MANY),
    "config resources": (resources.ListConfigResourcesRequest(), 1, "config_resources", ALL + 1),
    "elect": (elect(THERE), 2, "replica_election_results", MANY),
    "elect all": (
        electing.ElectLeadersRequest(topic_partitions=None),
        2,
        "replica_election_results",
        ALL,
    ),
    "move": (move(THERE), 1, "responses", MANY),
    "users": (users(GONE), 0, "results", MANY),
}


def put(stream: FakeStream, request: Request, version: int) -> None:
    stream.inbox += encode_request(RequestHeader(request.api_key, version, 1, "c"), request)


@pytest.mark.parametrize("case", LONG)
def test_others_are_answered_before_a_long_request_is(broker: MemoryBroker, case: str) -> None:
    request, version, field, count = LONG[case]
    long, other = broker.connect(), broker.connect()
    put(long, request, version)
    while long.inbox:
        broker.broker.loop.run_turn(0)
    small = topics.MetadataRequest(topics=[topics.MetadataRequestTopic(name="plain")])
    put(other, small, 9)
    for _ in range(2):
        broker.broker.loop.run_turn(0)
    assert other.sent
    assert not long.sent
    broker.turns()
    assert len(getattr(answer_of(long, request, version), field)) == count


def test_each_has_its_own_answer(broker: MemoryBroker) -> None:
    found = broker.call(delete(THERE), 2).topics
    codes = [topic.partitions[0].error_code for topic in found]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (MANY - 1) + [ErrorCode.NONE]
    elected = broker.call(elect(THERE), 2).replica_election_results
    assert [each.topic for each in elected] == THERE


def test_directories_of_many_named_partitions_are_described_in_slices(broker: MemoryBroker) -> None:
    rows = [directories.DescribableLogDirTopic(topic=name, partitions=[0, 1]) for name in THERE]
    request = directories.DescribeLogDirsRequest(topics=rows)
    for version in (1, 5):
        long, other = broker.connect(), broker.connect()
        put(long, request, version)
        while long.inbox:
            broker.broker.loop.run_turn(0)
        put(other, topics.MetadataRequest(topics=[]), 9)
        for _ in range(2):
            broker.broker.loop.run_turn(0)
        assert other.sent
        assert not long.sent
        broker.turns()
        (result,) = answer_of(long, request, version).results
        assert [topic.name for topic in result.topics] == ["plain"]
        assert [each.partition_index for each in result.topics[0].partitions] == [0, 1]
