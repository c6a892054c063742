"""Responses of a standalone broker to elections, moves and listings: those of a Kafka broker."""

from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pyspark_klog.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from pyspark_klog.protocol.apis.list_config_resources import ListConfigResourcesRequest
from pyspark_klog.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.cluster.broker import TOPICS, MemoryBroker, new_broker

PREFERRED, UNCLEAN = 0, 1
MISSING = "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def me(broker: MemoryBroker) -> int:
    return broker.broker.services.broker_id


class TestElectLeaders:
    def elect_leaders(
        self,
        broker: MemoryBroker,
        topics: list[tuple[str, list[int]]] | None,
        election: int = PREFERRED,
        version: int = 2,
    ) -> tuple[str, list[tuple[str, int, str]]]:
        rows = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics or ()]
        request = ElectLeadersRequest(topic_partitions=None if topics is None else rows)
        if version >= 1:
            request.election_type = election
        answer = broker.call(request, version)
        self.topics = [each.topic for each in answer.replica_election_results]
        return ErrorCode(answer.error_code).name, [
            (topic.topic, each.partition_id, ErrorCode(each.error_code).name)
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ]

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_the_only_replica_leads(self, broker: MemoryBroker, version: int) -> None:
        asked = [("plain", [0, 7, -1, 0]), ("none", [0]), ("plain", [])]
        assert self.elect_leaders(broker, asked, version=version) == (
            "NONE",
            [
                ("plain", 0, "ELECTION_NOT_NEEDED"),
                ("plain", 7, MISSING),
                ("plain", -1, MISSING),
                ("plain", 0, "ELECTION_NOT_NEEDED"),
                ("none", 0, MISSING),
            ],
        )
        assert self.topics == ["plain", "none", "plain"]

    @pytest.mark.parametrize("election", [PREFERRED, UNCLEAN])
    def test_all_partitions(self, broker: MemoryBroker, election: int) -> None:
        assert self.elect_leaders(broker, None, election) == ("NONE", [])
        assert set(self.topics) == set(TOPICS)

    @pytest.mark.parametrize(
        ("election", "code"),
        [
            (PREFERRED, "PREFERRED_LEADER_NOT_AVAILABLE"),
            (UNCLEAN, "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
        ],
    )
    def test_an_offline_disk(self, broker: MemoryBroker, election: int, code: str) -> None:
        broker.broker.services.logs.on_directory_offline = None  # the broker would end
        broker.log("plain").log_directory.go_offline(OSError("the disk is gone"))
        broker.turns()
        assert self.elect_leaders(broker, [("plain", [2])], election) == (
            "NONE",
            [("plain", 2, code)],
        )
        found = self.elect_leaders(broker, None, election)[1]
        assert {each[2] for each in found} == {code}
        assert len(found) == sum(count for count, _ in TOPICS.values())

    @pytest.mark.parametrize("election", [-128, -1, 2, 127])
    def test_an_unknown_election(self, broker: MemoryBroker, election: int) -> None:
        refused = "INVALID_REQUEST"
        assert self.elect_leaders(broker, [("plain", [0])], election) == (
            refused,
            [("plain", 0, refused)],
        )
        assert self.elect_leaders(broker, None, election) == (refused, [])
        assert self.elect_leaders(broker, [], election) == ("NONE", [])


class TestReassignments:
    def reassign_partitions(
        self,
        broker: MemoryBroker,
        *rows: tuple[str, int, list[int] | None],
        version: int = 1,
        **more: Any,
    ) -> list[str]:
        topics = [
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
            )
            for name, index, replicas in rows
        ]
        request = AlterPartitionReassignmentsRequest(topics=topics, **more)
        answer = broker.call(request, version)
        assert (answer.error_code, answer.error_message) == (0, None)
        expected = more.get("allow_replication_factor_change", True)
        assert answer.allow_replication_factor_change is expected
        found = [(t.name, each) for t in answer.responses for each in t.partitions]
        assert [(name, each.partition_index) for name, each in found] == [row[:2] for row in rows]
        return [ErrorCode(each.error_code).name for _, each in found]

    @pytest.mark.parametrize("version", [0, 1])
    def test_to_where_it_is(self, broker: MemoryBroker, version: int) -> None:
        rows = ("plain", 0, [me(broker)]), ("plain", 0, [me(broker)]), ("plain", 0, None)
        expected = ["NONE", "NONE", "NO_REASSIGNMENT_IN_PROGRESS"]
        assert self.reassign_partitions(broker, *rows, version=version) == expected

    def test_what_is_refused(self, broker: MemoryBroker) -> None:
        mine = me(broker)
        for replicas in ([], [mine + 1], [-1], [mine, mine], [mine, mine + 1], [2**31 - 1] * 500):
            for may_change in (True, False):
                assert self.reassign_partitions(
                    broker, ("plain", 0, replicas), allow_replication_factor_change=may_change
                ) == ["INVALID_REPLICA_ASSIGNMENT"]
        rows = ("none", 0, [mine]), ("plain", 9, None), ("plain", -1, []), ("", 0, None)
        assert self.reassign_partitions(broker, *rows) == [MISSING] * 4
        assert self.reassign_partitions(broker) == []

    @pytest.mark.parametrize("topics", [None, [], ["plain", "none", ""]])
    def test_none_is_under_way(self, broker: MemoryBroker, topics: list[str] | None) -> None:
        rows = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 0, -1])
            for name in topics or ()
        ]
        request = ListPartitionReassignmentsRequest(topics=None if topics is None else rows)
        answer = broker.call(request, 0)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


class TestListConfigResources:
    def list_resources(self, broker: MemoryBroker, *types: int) -> list[tuple[int, str]] | str:
        answer = broker.call(ListConfigResourcesRequest(resource_types=list(types)), 1)
        if answer.error_code:
            assert not answer.config_resources
            return ErrorCode(answer.error_code).name
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    def test_by_type(self, broker: MemoryBroker) -> None:
        brokers, topics = [(4, str(me(broker)))], [(2, name) for name in TOPICS]
        assert self.list_resources(broker) == brokers + topics
        assert self.list_resources(broker, 2) == self.list_resources(broker, 2, 2) == topics
        assert self.list_resources(broker, 4) == brokers
        assert self.list_resources(broker, 2, 4, 16) == brokers + topics
        assert self.list_resources(broker, 8, 16, 32) == []

    @pytest.mark.parametrize("wrong", [-128, 0, 1, 3, 77, 127])
    def test_unknown_types(self, broker: MemoryBroker, wrong: int) -> None:
        assert self.list_resources(broker, 2, wrong) == "UNSUPPORTED_VERSION"

    def test_the_first_version_asks_for_client_metrics(self, broker: MemoryBroker) -> None:
        answer = broker.call(ListConfigResourcesRequest(), 0)
        assert (answer.error_code, answer.config_resources) == (0, [])
