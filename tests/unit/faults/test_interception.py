"""Faults that a test adds to its own broker: which requests they affect, and how."""

from typing import Any

import pytest

from klog_broker.faults.fault import Fault, FaultRefused, parse_fault
from klog_broker.faults.interception import Interception
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.list_groups import ListGroupsRequest
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
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
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker, topic_ids
from tests.support.raw_requests import batch, fetch_request, produce_request
from tests.support.runtime.fake_network import FakeStream

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NONE = ErrorCode.NONE
LIST_GROUPS = ListGroupsRequest()
PLAIN_ID = topic_ids(("plain",))["plain"]


class FaultyBroker:
    """A broker in memory to which tests add faults."""

    def __init__(self, *, with_kernel: bool = False) -> None:
        self.memory: MemoryBroker = new_broker(with_kernel=with_kernel, topics=("plain",))
        services = self.memory.broker.services
        self.interception = Interception(
            self.memory.broker.server,
            services.loop,
            lambda topic_id: next(
                n for n, known in topic_ids(("plain",)).items() if known == topic_id
            ),
            lambda client_id: client_id == "broker-1",
        )
        self._numbers = 0

    def add(self, action: str, **fields: Any) -> Fault:
        defaults = {"times": None, "topic": None, "partition": None}
        fault = parse_fault({"action": action, **defaults, **fields})
        self._numbers += 1
        self.interception.add(self._numbers, fault)
        return fault

    def send(self, request: Request, version: int, client_id: str = "c") -> FakeStream:
        stream = self.memory.connect()
        header = RequestHeader(request.api_key, version, 1, client_id)
        stream.inbox += encode_request(header, request)
        self.memory.turns()
        return stream

    def call(self, request: Request, version: int) -> Any:
        stream = self.send(request, version)
        assert stream.sent, "no response"
        return answer_of(stream, request, version)

    def end_offset(self, partition: int = 0) -> int:
        found: int = self.memory.log("plain", partition).log_end_offset
        return found


@pytest.fixture
def broker() -> FaultyBroker:
    return FaultyBroker()


def produce_to(*partitions: int, acks: int = -1) -> ProduceRequest:
    rows = [PartitionProduceData(index=each, records=batch(b"v")) for each in partitions]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="plain", topic_id=PLAIN_ID, partition_data=rows)],
    )


def produce_errors(response: Any) -> dict[int, int]:
    return {
        row.index: row.error_code
        for topic in response.responses
        for row in topic.partition_responses
    }


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_an_error_of_a_partition_leaves_the_rest_of_the_request(
    broker: FaultyBroker, version: int
) -> None:
    fault = broker.add("answer", api="Produce", error=NOT_LEADER.name, topic="plain", partition=0)
    response = broker.call(produce_to(0, 1), version)
    assert produce_errors(response) == {0: NOT_LEADER, 1: NONE}
    assert (broker.end_offset(0), broker.end_offset(1), fault.fired) == (0, 1, 1)


def test_an_error_of_a_whole_request_is_answered_for_each_partition(broker: FaultyBroker) -> None:
    broker.add("answer", api="Produce", error=NOT_LEADER.name)
    assert produce_errors(broker.call(produce_to(0, 1), 9)) == {0: NOT_LEADER, 1: NOT_LEADER}
    assert (broker.end_offset(0), broker.end_offset(1)) == (0, 0)


def test_a_produce_request_without_acknowledgements_gets_a_closed_connection(
    broker: FaultyBroker,
) -> None:
    broker.add("answer", api="Produce", error=NOT_LEADER.name, topic="plain")
    stream = broker.send(produce_to(0, acks=0), 9)
    assert stream.is_closed and not stream.sent
    assert broker.end_offset(0) == 0


def test_a_fault_ends_after_its_uses(broker: FaultyBroker) -> None:
    fault = broker.add("answer", api="Produce", error=NOT_LEADER.name, times=2)
    errors = [produce_errors(broker.call(produce_to(0), 9))[0] for _ in range(3)]
    assert errors == [NOT_LEADER, NOT_LEADER, NONE]
    assert fault.fired == 2


def test_other_topics_partitions_and_apis_are_served(broker: FaultyBroker) -> None:
    other = broker.add("answer", api="Produce", error=NOT_LEADER.name, topic="other")
    second = broker.add("answer", api="Produce", error=NOT_LEADER.name, topic="plain", partition=2)
    groups = broker.add("answer", api="ListGroups", error="COORDINATOR_NOT_AVAILABLE")
    assert produce_errors(broker.call(produce_to(0), 9)) == {0: NONE}
    assert (other.fired, second.fired, groups.fired) == (0, 0, 0)
    response = broker.call(LIST_GROUPS, 4)
    assert (response.error_code, groups.fired) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1)


@pytest.mark.parametrize("version", [4, 12])
def test_a_fetch_gets_the_error_of_one_partition_and_the_records_of_another(
    broker: FaultyBroker, version: int
) -> None:
    broker.call(produce_to(0, 1), 9)
    fault = broker.add("answer", api="Fetch", error=NOT_LEADER.name, topic="plain", partition=0)
    response = broker.call(fetch_request("plain", partitions=(0, 1)), version)
    rows = {row.partition_index: row for row in response.responses[0].partitions}
    assert (rows[0].error_code, bytes(rows[0].records)) == (NOT_LEADER, b"")
    assert (rows[1].error_code, len(bytes(rows[1].records)) > 0) == (NONE, True)
    assert fault.fired == 1


def test_a_fetch_session_begins_again_so_that_the_error_is_not_missed(broker: FaultyBroker) -> None:
    first = broker.call(fetch_request("plain", session_epoch=0), 12)
    assert first.session_id != 0
    fault = broker.add("answer", api="Fetch", error=NOT_LEADER.name, topic="plain", partition=0)
    request = fetch_request("plain", (), session_id=first.session_id, session_epoch=1)
    request.topics = []
    response = broker.call(request, 12)
    assert (response.error_code, fault.fired) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    response = broker.call(fetch_request("plain", session_epoch=0), 12)
    assert (response.session_id, response.responses[0].partitions[0].error_code) == (0, NOT_LEADER)


def test_metadata_of_all_topics_has_the_error_of_one_partition(broker: FaultyBroker) -> None:
    code = ErrorCode.LEADER_NOT_AVAILABLE
    broker.add("answer", api="Metadata", error=code.name, topic="plain", partition=1)
    (topic,) = broker.call(MetadataRequest(topics=None), 12).topics
    found = {row.partition_index: (row.error_code, row.leader_id) for row in topic.partitions}
    assert found == {0: (NONE, 0), 1: (code, -1), 2: (NONE, 0)}


def test_metadata_has_the_error_of_a_topic(broker: FaultyBroker) -> None:
    code = ErrorCode.LEADER_NOT_AVAILABLE
    broker.add("answer", api="Metadata", error=code.name)
    response = broker.call(MetadataRequest(topics=None), 12)
    assert [(each.error_code, each.partitions) for each in response.topics] == [(code, [])]
    assert response.brokers


def test_a_fault_survives_a_client_that_leaves_before_its_response(broker: FaultyBroker) -> None:
    fault = broker.add("answer", api="Metadata", error="LEADER_NOT_AVAILABLE")
    # The broker answers once it has created the topic; the client closes its connection before.
    new_topic = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    stream = broker.memory.connect()
    stream.inbox += encode_request(RequestHeader(new_topic.api_key, 12, 1, "c"), new_topic)
    stream.is_at_end = True
    broker.memory.turns()
    assert stream.is_closed
    assert "new" in broker.memory.broker.services.metadata.image.topics
    assert (stream.sent, fault.fired) == (b"", 0)
    assert broker.call(MetadataRequest(topics=None), 12).topics
    assert fault.fired == 1


def test_offsets_of_groups_have_the_error_of_one_partition(broker: FaultyBroker) -> None:
    code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    broker.call(fetch_request("plain"), 12)
    fault = broker.add("answer", api="OffsetFetch", error=code.name, topic="plain", partition=1)
    topics = [OffsetFetchRequestTopics(name="plain", partition_indexes=[0, 1])]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    response = broker.call(OffsetFetchRequest(groups=[group]), 8)
    (found,) = response.groups
    rows = [row.error_code for topic in found.topics for row in topic.partitions]
    # Without a coordinator the whole group has an error, and no partition is listed.
    assert rows in ([], [NONE, code])
    assert fault.fired == (1 if rows else 0)


def test_a_delayed_request_holds_up_its_connection_alone(broker: FaultyBroker) -> None:
    fault = broker.add("delay", api="Produce", ms=500, times=1)
    stream = broker.send(produce_to(0), 9)
    stream.inbox += encode_request(RequestHeader(0, 9, 2, "c"), produce_to(0))
    broker.memory.turns()
    assert (bytes(stream.sent), broker.end_offset(0)) == (b"", 0)
    assert produce_errors(broker.call(produce_to(1), 9)) == {1: NONE}
    broker.memory.pass_time(499)
    assert not stream.sent
    broker.memory.pass_time(1)
    assert (broker.end_offset(0), fault.fired) == (2, 1)
    size = int.from_bytes(stream.sent[:4], "big")
    assert [int.from_bytes(stream.sent[at : at + 4], "big") for at in (4, size + 8)] == [1, 2]


def test_a_delayed_request_of_a_closed_connection_is_not_carried_out(broker: FaultyBroker) -> None:
    broker.add("delay", api="ListGroups", ms=500)
    stream = broker.send(LIST_GROUPS, 4)
    stream.is_at_end = True
    broker.memory.turns()
    broker.memory.pass_time(1_000)
    assert stream.is_closed and not stream.sent


@pytest.mark.parametrize(("action", "appended"), [("before", 0), ("after", 1)])
def test_a_connection_is_closed_before_or_after_the_request_is_carried_out(
    broker: FaultyBroker, action: str, appended: int
) -> None:
    fault = broker.add(f"disconnect-{action}", api="Produce", times=1)
    stream = broker.send(produce_to(0), 9)
    assert stream.is_closed and not stream.sent
    assert (broker.end_offset(0), fault.fired) == (appended, 1)


def test_a_black_hole_swallows_the_requests_of_its_client_until_it_ends(
    broker: FaultyBroker,
) -> None:
    fault = broker.add("blackhole", client_id="lost")
    stream = broker.send(produce_to(0), 9, client_id="lost")
    broker.memory.pass_time(60_000)
    assert not stream.sent and not stream.is_closed
    assert produce_errors(broker.call(produce_to(1), 9)) == {1: NONE}
    assert (broker.end_offset(0), fault.fired) == (0, 1)
    assert broker.interception.end(1) == 1
    broker.memory.pass_time(1)
    assert stream.is_closed
    assert broker.send(produce_to(0), 9, client_id="lost").sent


def test_requests_of_other_brokers_are_not_affected(broker: FaultyBroker) -> None:
    fault = broker.add("disconnect-before", api="Fetch")
    assert broker.send(fetch_request("plain"), 12, client_id="broker-1").sent
    assert not broker.send(fetch_request("plain"), 12).sent
    assert fault.fired == 1


def test_only_a_broker_without_faults_plans_produce_requests() -> None:
    broker = FaultyBroker(with_kernel=True)
    request = produce_request("plain", batch(b"v"))
    assert produce_errors(broker.call(request, 9)) == {0: NONE}
    assert broker.memory.planned == 1
    broker.add("answer", api="ListGroups", error="COORDINATOR_NOT_AVAILABLE")
    assert produce_errors(broker.call(request, 9)) == {0: NONE}
    assert broker.memory.planned == 1
    broker.interception.end_all()
    assert produce_errors(broker.call(request, 9)) == {0: NONE}
    assert broker.memory.planned == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"api": "Produced"}, "brokers serve no API 'Produced'"),
        ({"api": "Heartbeat", "topic": "t"}, "Heartbeat has no errors of single topics"),
        ({"api": "CreateTopics", "topic": "t", "partition": 0}, "no errors of single partitions"),
        ({"api": "Produce", "partition": 0}, "a partition needs its topic"),
    ],
)
def test_a_fault_that_cannot_be_answered_is_refused(
    broker: FaultyBroker, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FaultRefused, match=reason):
        broker.add("answer", error="NONE", **fields)
