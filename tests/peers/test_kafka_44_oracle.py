"""The versions of APIs that are new in Kafka 4.4, and its bounds of decoding: as klog has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.apis.describe_cluster import DescribeClusterRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyspark_klog.protocol.message import Request
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.peers import KAFKA_4_4, KafkaServer
from tests.support.raw_client import ConnectionClosed, RawClient
from tests.support.raw_requests import create_topic

pytestmark = pytest.mark.peers

SETTINGS = {"group.initial.rebalance.delay.ms": 0}
UNKNOWN_ID, ZERO_ID = UUID(int=77), UUID(int=0)
MOST_TAGS = 10_000
MOST_ELEMENTS = 1_000_000

Answers = dict[str, Any]


def test_new_versions_and_bounds_are_kafkas(tmp_path: Path) -> None:
    with KafkaServer(KAFKA_4_4) as server:
        host, port = server.bootstrap_servers.split(":")
        kafkas = answers_of(lambda: RawClient((host, int(port))))
    with BrokerThread(tmp_path / "data", SETTINGS) as broker:
        klogs = answers_of(broker.client)
        assert broker.broker.services.requests.bugs.total == 0
    for name, answer in kafkas.items():
        assert klogs[name] == answer, name
    assert len(klogs) == len(kafkas) > 40


def answers_of(connect: Callable[[], RawClient]) -> Answers:
    """A broker's answers, by the name of the request."""
    answers: Answers = {}
    with connect() as client:
        topic_id = create_topic(client, "t")
        ask_api_versions(client, answers)
        ask_delete_groups(client, answers)
        ask_txn_offset_commit(client, answers, topic_id)
    ask_beyond_bounds(connect, answers)
    return answers


def ask_api_versions(client: RawClient, answers: Answers) -> None:
    cluster = client.call(DescribeClusterRequest(), 1)
    right, node = cluster.cluster_id, cluster.brokers[0].broker_id
    for cluster_id in (None, right, "x" * 22, ""):
        for node_id in (-1, node, node + 1, -2):
            named = ("right" if cluster_id == right else cluster_id, node_id - node)
            for software in ("test", ""):
                request = ApiVersionsRequest(
                    client_software_name=software,
                    client_software_version="1",
                    cluster_id=cluster_id,
                    node_id=node_id,
                )
                answer = client.call(request, 5)
                found = (ErrorCode(answer.error_code).name, bool(answer.api_keys))
                answers[f"ApiVersions of {named} by {software!r}"] = found


def ask_delete_groups(client: RawClient, answers: Answers) -> None:
    commit = OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)]
    )
    ask = OffsetCommitRequest(group_id="empty", topics=[commit])
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["empty", "held"])
    for request, version in ((find, 4), (ask, 9)):
        eventually(lambda request=request, version=version: is_fine(client.call(request, version)))
    join = JoinGroupRequest(
        group_id="held",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="p")],
    )
    join.member_id = client.call(join, 5).member_id
    assert client.call(join, 5).error_code == 0
    for version in (2, 3):
        names = ["nobody", "held", *(["empty"] if version == 3 else [])]
        answer = client.call(DeleteGroupsRequest(groups_names=names), version)
        answers[f"DeleteGroups {version}"] = sorted(
            (each.group_id, ErrorCode(each.error_code).name, each.error_message)
            for each in answer.results
        )


def is_fine(answer: Any) -> bool:
    rows = answer.coordinators if hasattr(answer, "coordinators") else answer.topics[0].partitions
    return all(row.error_code == 0 for row in rows)


def ask_txn_offset_commit(client: RawClient, answers: Answers, topic_id: UUID) -> None:
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
    eventually(lambda: is_fine(client.call(find, 4)))
    init = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    producer = eventually(lambda: fine_or_none(client.call(init, 5)))
    names = {topic_id: "t", UNKNOWN_ID: "unknown", ZERO_ID: "zero"}

    def commit_offset(what: str, *ids: UUID, group: str = "g", **fields: Any) -> None:
        rows = [0, 9] if what == "two partitions" else [9] if what == "no partition" else [0]
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=each,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=row, committed_offset=3)
                        for row in rows
                    ],
                )
                for each in ids or (topic_id,)
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answers[f"TxnOffsetCommit: {what}"] = sorted(
            (names[topic.topic_id], topic.name, row.partition_index, ErrorCode(row.error_code).name)
            for topic in client.call(request, 6).topics
            for row in topic.partitions
        )

    commit_offset("fine")
    commit_offset("unknown topic", UNKNOWN_ID)
    commit_offset("no topic", ZERO_ID)
    commit_offset("several topics", topic_id, UNKNOWN_ID, ZERO_ID)
    commit_offset("a topic twice", topic_id, topic_id)
    commit_offset("no partition")
    commit_offset("two partitions")
    commit_offset("empty group", group="")
    commit_offset(
        "member of no group", group="none", generation_id_or_member_epoch=3, member_id="m"
    )
    commit_offset("outside of the group", group="held")
    commit_offset("unknown member", group="held", generation_id_or_member_epoch=1, member_id="m")
    commit_offset("another producer", producer_id=99)
    commit_offset("old epoch", producer_epoch=-1)


def fine_or_none(answer: Any) -> Any:
    return None if answer.error_code else answer


def ask_beyond_bounds(connect: Callable[[], RawClient], answers: Answers) -> None:
    """Kafka closes the connection. klog takes fewer elements still (MAX_REQUEST_ELEMENTS)."""
    for count in (MOST_TAGS, MOST_TAGS + 1):
        tags = dict.fromkeys(range(count), b"")
        request = MetadataRequest(topics=[], unknown_tagged_fields=tags)
        answers[f"{count} tags"] = is_answered(connect, request, 12)
    many = DeleteGroupsRequest(groups_names=[""] * (MOST_ELEMENTS + 1))
    answers["many elements"] = is_answered(connect, many, 2)


def is_answered(connect: Callable[[], RawClient], request: Request, version: int) -> bool:
    with connect() as client:
        try:
            client.call(request, version)
        except ConnectionClosed:
            return False
        return True
