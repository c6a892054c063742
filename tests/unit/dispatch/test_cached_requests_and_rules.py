"""A request that a connection repeats is served without decoding only until the rules change."""

from collections.abc import Iterator
from typing import Any

import pytest

from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.runtime.fake_network import FakeStream
from tests.support.security.rules import Rules

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
DENIED_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Client:
    """One connection, whose requests differ in their correlation ids."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._stream: FakeStream = broker.connect()
        self._count = 0

    def call(self, request: Request, version: int) -> Any:
        self._count += 1
        header = RequestHeader(request.api_key, version, self._count, "c")
        self._stream.inbox += encode_request(header, request)
        self._broker.turns()
        response = decode_response(bytes(self._stream.sent[4:]), request.api_key, version)
        self._stream.sent.clear()
        return response


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def broker(rules: Rules) -> Iterator[MemoryBroker]:
    found = new_broker(with_kernel=False, authorizer=rules)
    for key, kind in (("g", 0), ("t", 1)):
        found.call(FindCoordinatorRequest(key=key, key_type=kind), 3)
        found.turns()
    yield found
    found.close()


def _fetch(epoch: int = -1, session_id: int = 0, topics: tuple[str, ...] = ("plain",)) -> Request:
    rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=each, partitions=rows) for each in topics],
    )


def _commit() -> Request:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    topics = [OffsetCommitRequestTopic(name="plain", partitions=rows)]
    return OffsetCommitRequest(group_id="g", topics=topics)


def _code(response: Any) -> int:
    for field in ("topics", "responses"):
        for topic in getattr(response, field, None) or ():
            return int(topic.partitions[0].error_code)
    return int(response.error_code)


CASES: dict[str, tuple[Request, int, tuple[AclOperation, AclResourceType, str], ErrorCode]] = {
    "heartbeat": (
        HeartbeatRequest(group_id="g", member_id="m"),
        3,
        (READ, GROUP, "g"),
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "end of a transaction": (
        EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True),
        5,
        (WRITE, AclResourceType.TRANSACTIONAL_ID, "t"),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "commit to a group": (
        _commit(),
        8,
        (READ, GROUP, "g"),
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    "commit of a topic": (_commit(), 8, (READ, TOPIC, "plain"), DENIED_TOPIC),
    "fetch": (_fetch(), 12, (READ, TOPIC, "plain"), DENIED_TOPIC),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cached_request_does_not_survive_a_change_of_the_rules(
    case: str, broker: MemoryBroker, rules: Rules
) -> None:
    request, version, rule, denied = CASES[case]
    client = Client(broker)
    allowed = _code(client.call(request, version))
    client.call(request, version)
    questions = rules.questions
    assert _code(client.call(request, version)) == allowed
    assert rules.questions == questions, "the request was not served from the cache"
    rules.deny(*rule)
    for _ in range(3):
        assert _code(client.call(request, version)) == denied
    rules.allow_everything()
    assert _code(client.call(request, version)) == allowed


def test_a_denied_partition_of_a_fetch_session_is_reported_without_an_event(
    broker: MemoryBroker, rules: Rules
) -> None:
    client = Client(broker)
    first = client.call(_fetch(0, topics=("plain", "compacted")), 12)
    session_id = first.session_id
    assert session_id
    assert client.call(_fetch(1, session_id, ()), 12).responses == []
    rules.deny(READ, TOPIC, "plain")
    for epoch in (2, 3):
        (seen,) = client.call(_fetch(epoch, session_id, ()), 12).responses
        assert (seen.topic, seen.partitions[0].error_code) == ("plain", DENIED_TOPIC)
    rules.allow_everything()
    (seen,) = client.call(_fetch(4, session_id, ()), 12).responses
    assert (seen.topic, seen.partitions[0].error_code) == ("plain", ErrorCode.NONE)
    assert client.call(_fetch(5, session_id, ()), 12).responses == []
