"""A served broker, one API after the other, over a real socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.create_topics import CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.describe_cluster import DescribeClusterRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.protocol.keys import ApiKey
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import NOW_MS, batch, create_topic, produced, topic_id_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data: Path = tmp_path_factory.mktemp("broker") / "data"
    with BrokerThread(data, {"num.partitions": 2, "broker.id": 7, "broker.rack": "r1"}) as thread:
        yield thread


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


# -- ApiVersions ------------------------------------------------------------------------------


def test_api_versions_names_what_is_served(client: RawClient) -> None:
    response = client.call(ApiVersionsRequest(), 0)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert ranges[ApiKey.FETCH] == (0, 18)
    assert ranges[ApiKey.METADATA] == (0, 13)
    assert ranges[ApiKey.LIST_OFFSETS] == (0, 11)
    assert ranges[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert ranges[ApiKey.WRITE_TXN_MARKERS] == (1, 2)
    assert ApiKey.ALTER_USER_SCRAM_CREDENTIALS not in ranges


def test_every_served_version_can_be_asked(client: RawClient) -> None:
    """The emptiest request of each API and version gets an answer that can be read."""
    answers = client.call(ApiVersionsRequest(), 0).api_keys
    assert len(answers) >= 14
    for row in answers:
        api = registry.find_api(row.api_key)
        for version in range(row.min_version, row.max_version + 1):
            request = api.request()
            if isinstance(request, ApiVersionsRequest):
                request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            if isinstance(request, ProduceRequest):
                request.acks = 1
            response = client.call(request, version)
            assert type(response) is api.response, (api.name, version)


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_an_unknown_version_of_it_is_answered_in_version_0(client: RawClient, version: int) -> None:
    known = client.call(ApiVersionsRequest(), 0)
    frame = bytearray(client.frame(ApiVersionsRequest(client_software_name="x"), 4))
    frame[6:8] = version.to_bytes(2, "big")
    client.send_bytes(bytes(frame))
    response = client.receive(ApiVersionsRequest, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.api_keys == known.api_keys


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä"])
def test_a_software_name_must_be_one(client: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert client.call(request, 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster", "node", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("right", 7, ErrorCode.NONE),
        ("right", 8, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("wrong", 7, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 7, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("right", -1, ErrorCode.INVALID_REQUEST),
        (None, 7, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_another_broker_gets_rebootstrap_required(
    client: RawClient, cluster: str | None, node: int, code: ErrorCode
) -> None:
    """Kafka 4.4 (KIP-1242) responds in the same way."""
    if cluster == "right":
        cluster = client.call(DescribeClusterRequest(), 1).cluster_id
    request = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=cluster, node_id=node
    )
    answer = client.call(request, 5)
    assert answer.error_code == code
    assert bool(answer.api_keys) == (code is ErrorCode.NONE)


# -- Metadata, DescribeCluster ----------------------------------------------------------------


def test_metadata_names_broker_controller_and_cluster(
    client: RawClient, broker: BrokerThread
) -> None:
    response = client.call(MetadataRequest(topics=[]), 12)
    (row,) = response.brokers
    assert (row.node_id, row.host, row.port, row.rack) == (7, *broker.address, "r1")
    assert response.controller_id == 7
    assert len(response.cluster_id) == 22
    assert response.topics == []


@pytest.mark.parametrize("version", range(14))
def test_metadata_creates_a_topic_that_is_asked_for(client: RawClient, version: int) -> None:
    name = f"made-by-v{version}"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    (first,) = client.call(request, version).topics
    asked_again = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (first.error_code, first.name, first.partitions) == (asked_again, name, [])
    assert first.topic_id.int == 0
    (topic,) = client.call(request, version).topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, name, 2)
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert partition.error_code == 0
        assert partition.leader_id == 7
        assert partition.replica_nodes == partition.isr_nodes == [7]
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert (topic.topic_id.int != 0) == (version >= 10)


def test_metadata_creates_nothing_where_that_is_not_allowed(client: RawClient) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="absent")], allow_auto_topic_creation=False
    )
    for _ in range(2):
        (topic,) = client.call(request, 9).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.partitions == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "ü", "x" * 250])
def test_metadata_refuses_illegal_names(client: RawClient, name: str) -> None:
    for auto in (True, False):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=auto
        )
        (topic,) = client.call(request, 9).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_all_topics_are_an_empty_list_in_version_0_and_null_later(client: RawClient) -> None:
    topic_id_of(client, "listed")
    assert "listed" in {topic.name for topic in client.call(MetadataRequest(), 0).topics}
    assert client.call(MetadataRequest(topics=[]), 1).topics == []
    everything = client.call(MetadataRequest(topics=None), 1).topics
    assert "listed" in {topic.name for topic in everything}


def test_metadata_by_topic_id(client: RawClient) -> None:
    topic_id = topic_id_of(client, "by-id")
    asked = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, uuid4())]
    asked.append(MetadataRequestTopic(name=None))
    known, unknown, nothing = client.call(MetadataRequest(topics=asked), 12).topics
    assert (known.name, known.topic_id, known.error_code) == ("by-id", topic_id, 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert nothing.error_code == ErrorCode.INVALID_REQUEST


def test_metadata_takes_the_id_before_the_name(client: RawClient) -> None:
    ids = {name: topic_id_of(client, name) for name in ("one", "two")}
    asked = [MetadataRequestTopic(topic_id=ids["one"], name="two")]
    asked.append(MetadataRequestTopic(topic_id=uuid4(), name="two"))
    one, unknown = client.call(MetadataRequest(topics=asked), 12).topics
    assert (one.name, one.topic_id, len(one.partitions)) == ("one", ids["one"], 2)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
def test_the_first_metadata_versions_with_topic_ids_refuse_them(
    client: RawClient, version: int
) -> None:
    topic_id = topic_id_of(client, "refused")
    for asked in (
        MetadataRequestTopic(topic_id=topic_id, name="refused"),
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(name=None),
    ):
        response = client.call(MetadataRequest(topics=[asked]), version)
        assert (response.brokers, response.controller_id) == ([], -1)
        [topic] = response.topics
        assert topic.error_code == ErrorCode.INVALID_REQUEST
        assert (topic.name, topic.topic_id) == (asked.name or "", asked.topic_id)


def test_a_recreated_topic_has_another_id(client: RawClient) -> None:
    first = create_topic(client, "again")
    response = client.call(DeleteTopicsRequest(topic_names=["again"], timeout_ms=10_000), 4)
    assert response.responses[0].error_code == 0
    second = create_topic(client, "again")
    assert first != second
    asked = [MetadataRequestTopic(topic_id=first, name=None)]
    (stale,) = client.call(MetadataRequest(topics=asked), 12).topics
    assert stale.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_authorized_operations_only_when_asked_for(client: RawClient) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="operations")])
    topic_id_of(client, "operations")
    response = client.call(request, 10)
    assert response.topics[0].topic_authorized_operations == -(2**31)
    assert response.cluster_authorized_operations == -(2**31)
    request.include_topic_authorized_operations = True
    request.include_cluster_authorized_operations = True
    response = client.call(request, 10)
    # Kafka without an authorizer: read, write, create, delete, alter, describe and both configs.
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert response.cluster_authorized_operations > 0
    request.topics = [MetadataRequestTopic(name="a b")]
    assert client.call(request, 10).topics[0].topic_authorized_operations == 0b1101_1111_1000


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(client: RawClient, broker: BrokerThread, version: int) -> None:
    response = client.call(DescribeClusterRequest(), version)
    assert response.error_code == 0
    assert response.controller_id == 7
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (7, *broker.address)
    ]
    assert response.cluster_id == client.call(MetadataRequest(topics=[]), 2).cluster_id


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_describe_cluster_has_no_other_endpoints(
    client: RawClient, kind: int, code: ErrorCode
) -> None:
    assert client.call(DescribeClusterRequest(endpoint_type=kind), 1).error_code == code


# -- producer ids and transactions ------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(client: RawClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [client.call(request, version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert [answer.producer_epoch for answer in answers] == [0, 0, 0]
    assert len({answer.producer_id for answer in answers}) == 3


def test_many_producers_at_once_and_more_than_a_block(broker: BrokerThread) -> None:
    clients = [broker.client() for _ in range(20)]
    request = InitProducerIdRequest(transactional_id=None)
    ids = []
    for _ in range(60):
        for client in clients:
            client.send(request, 4)
        ids += [client.receive(request, 4).producer_id for client in clients]
    for client in clients:
        client.close()
    assert len(set(ids)) == 1200
    assert min(ids) >= 0


def test_an_id_without_an_epoch_is_refused(client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=5)
    assert client.call(request, 3).error_code == ErrorCode.INVALID_REQUEST
    request = InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=1)
    assert client.call(request, 3).error_code == 0


@pytest.mark.parametrize("version", range(1, 6))
def test_a_transactional_id_has_a_coordinator(client: RawClient, version: int) -> None:
    def find_coordinators() -> list[Any]:
        if version >= 4:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b", ""])
            return list(client.call(request, version).coordinators)
        return [client.call(FindCoordinatorRequest(key=each, key_type=1), version) for each in "ab"]

    eventually(
        lambda: [each.error_code for each in find_coordinators()][:2] == [0, 0],
        what="a coordinator",
    )
    answers = find_coordinators()
    assert {each.node_id for each in answers[:2]} == {7}
    if version >= 4:
        assert [each.key for each in answers] == ["a", "b", ""]
        assert answers[2].error_code == 0, "as in Kafka, the empty id has a coordinator, too"


def test_an_unknown_kind_of_coordinator(client: RawClient) -> None:
    answer = client.call(FindCoordinatorRequest(key="a", key_type=9), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# -- ListOffsets, OffsetForLeaderEpoch --------------------------------------------------------


def list_offsets(
    client: RawClient, topic: str, timestamp: int, version: int, **options: int
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **options)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    answer: ListOffsetsPartitionResponse = client.call(request, version).topics[0].partitions[0]
    return answer


@pytest.fixture
def topic_of_30(client: RawClient, request: pytest.FixtureRequest) -> str:
    """Three batches of ten records, one millisecond apart."""
    name = f"thirty-{abs(hash(request.node.name))}"
    create_topic(client, name)
    for _ in range(3):
        produced(client, name, batch(*[b"v"] * 10))
    return name


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_by_time(client: RawClient, topic_of_30: str, version: int) -> None:
    def offset_at(timestamp: int) -> tuple[int, int]:
        answer = list_offsets(client, topic_of_30, timestamp, version)
        assert answer.error_code == 0
        assert answer.leader_epoch == (0 if version >= 4 and answer.offset >= 0 else -1)
        return answer.offset, answer.timestamp

    assert offset_at(-1) == (30, -1)
    assert offset_at(-2) == (0, -1)
    assert offset_at(NOW_MS + 4) == (4, NOW_MS + 4)
    assert offset_at(0) == (0, NOW_MS)
    assert offset_at(NOW_MS + 10) == (-1, -1)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [(-3, 7, (9, NOW_MS + 9)), (-4, 8, (0, -1)), (-5, 9, (-1, -1)), (-6, 11, (-1, -1))],
)
def test_special_times_since_their_versions(
    client: RawClient,
    topic_of_30: str,
    timestamp: int,
    since: int,
    expected: tuple[int, int],
) -> None:
    for version in range(1, 12):
        answer = list_offsets(client, topic_of_30, timestamp, version)
        if version < since:
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        else:
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, *expected)
    assert list_offsets(client, topic_of_30, -7, 11).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_offsets_of_segments_in_version_0(client: RawClient) -> None:
    create_topic(client, "segments", segment_bytes=1000)
    for _ in range(10):
        produced(client, "segments", batch(b"x" * 400))
    latest = list_offsets(client, "segments", -1, 0, max_num_offsets=100)
    assert latest.error_code == 0
    assert latest.old_style_offsets == [10, 8, 6, 4, 2, 0]
    assert list_offsets(client, "segments", -1, 0).old_style_offsets == [10]
    assert list_offsets(client, "segments", -2, 0, max_num_offsets=9).old_style_offsets == [0]
    assert list_offsets(client, "segments", 1000, 0, max_num_offsets=9).old_style_offsets == []
    future = list_offsets(client, "segments", 2**62, 0, max_num_offsets=2)
    assert future.old_style_offsets == [10, 8]
    bad = list_offsets(client, "segments", -1, 0, max_num_offsets=0)
    assert bad.error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_named_twice_is_refused(client: RawClient, topic_of_30: str) -> None:
    rows = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in (0, 0, 1)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic_of_30, partitions=rows)]
    )
    answers = client.call(request, 4).topics[0].partitions
    assert [answer.error_code for answer in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    # Version 0 has no such check in Kafka.
    answers = client.call(request, 0).topics[0].partitions
    assert [answer.error_code for answer in answers][:2] == [0, 0]


def test_a_client_with_another_leader_epoch_gets_an_epoch_error(
    client: RawClient, topic_of_30: str
) -> None:
    answer = list_offsets(client, topic_of_30, -1, 4, current_leader_epoch=5)
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert list_offsets(client, topic_of_30, -1, 4, current_leader_epoch=0).offset == 30
    answer = list_offsets(client, topic_of_30, -1, 4, current_leader_epoch=-2)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert list_offsets(client, "absent", -1, 4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(5))
def test_where_a_leader_epoch_ends(client: RawClient, topic_of_30: str, version: int) -> None:
    def epoch_end(partition: int, leader_epoch: int, current: int = -1) -> EpochEndOffset:
        row = OffsetForLeaderPartition(
            partition=partition, leader_epoch=leader_epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=topic_of_30, partitions=[row])]
        )
        answer: EpochEndOffset = client.call(request, version).topics[0].partitions[0]
        return answer

    answer = epoch_end(0, 0)
    assert (answer.error_code, answer.end_offset) == (0, 30)
    assert answer.leader_epoch == (0 if version >= 1 else -1)
    assert epoch_end(0, 9).end_offset == -1
    assert epoch_end(5, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        assert epoch_end(0, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# -- what several brokers in one process share: nothing ---------------------------------------


def test_two_brokers_in_one_process(tmp_path: Path) -> None:
    with (
        BrokerThread(tmp_path / "a") as first,
        BrokerThread(tmp_path / "b") as second,
        first.client() as one,
        second.client() as other,
    ):
        create_topic(one, "only-here")
        create_topic(other, "only-there")
        names = [
            {topic.name for topic in each.call(MetadataRequest(topics=None), 9).topics}
            for each in (one, other)
        ]
        clusters = [each.call(MetadataRequest(topics=[]), 9).cluster_id for each in (one, other)]
    assert names == [{"only-here"}, {"only-there"}]
    assert clusters[0] != clusters[1]


def test_a_topic_of_a_uuid_name_is_no_topic_id(client: RawClient) -> None:
    name = str(UUID(int=5))
    create_topic(client, name)
    assert client.call(CreateTopicsRequest(), 5).topics == []
    assert topic_id_of(client, name) != UUID(int=5)
