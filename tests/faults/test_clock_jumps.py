"""The wall clock jumps by a year while a broker runs, or between two runs.

Sessions, waits and intervals go by the monotonic clock, and notice nothing. Times that Kafka
measures by the wall clock follow it here, too. Retention by time deletes all segments that are too
old by that clock, the active one included. Offsets of empty groups and idle producers expire. A
transaction that seems to be open for a year is aborted. Other data stays, and a clock that is set
back deletes nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from pyspark_klog.protocol.headers import decode_response
from tests.simulation.world import WorldClock
from tests.support.cluster.broker import NOW_MS, MemoryBroker
from tests.support.coordinator.transaction_client import MemoryClient, broker_with_coordinators
from tests.support.log.harness import read_all
from tests.support.raw_requests import batch, fetch_request, produce_request
from tests.support.runtime.fake_network import FakeStream
from tests.support.runtime.memory_files import MemoryFiles

YEAR_MS = 365 * 86_400_000
JUMPS = pytest.mark.parametrize("jump_ms", [YEAR_MS, -YEAR_MS], ids=["forward", "back"])
RETENTION_CHECK_MS = 300_000


@pytest.fixture
def clock() -> WorldClock:
    return WorldClock(NOW_MS)


@pytest.fixture
def files() -> MemoryFiles:
    """A disk with the internal topics."""
    broker = broker_with_coordinators()
    broker.close()
    return broker.files.killed()


@pytest.fixture
def broker(files: MemoryFiles, clock: WorldClock) -> MemoryBroker:
    return MemoryBroker(files, with_kernel=False, clock=clock)


def produce(broker: MemoryBroker, topic: str, **options: Any) -> Any:
    answer = broker.call(produce_request(topic, batch(b"value" * 60, **options)), 9)
    return answer.responses[0].partition_responses[0]


def fill(broker: MemoryBroker, topic: str) -> None:
    for _ in range(12):
        assert produce(broker, topic).error_code == 0


def housekeep(broker: MemoryBroker) -> None:
    """Run retention on each log: one log a turn."""
    broker.pass_time(RETENTION_CHECK_MS)
    for _ in range(2 * len(broker.broker.services.logs.logs())):
        broker.pass_time(1)


def count(broker: MemoryBroker, topic: str) -> int:
    log = broker.log(topic)
    return len(read_all(log, log.log_end_offset))


def offset_at(broker: MemoryBroker, topic: str, timestamp: int) -> int:
    rows = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)]
    )
    return int(broker.call(request, 5).topics[0].partitions[0].offset)


class Member:
    """A consumer group with one member."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        join = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        join.member_id = broker.call(join, 5).member_id
        stream = broker.send(join, 5)
        broker.pass_time(5_000)
        joined: Any = decode_response(bytes(stream.sent[4:]), join.api_key, 5)
        assert joined.error_code == 0
        self.place = {
            "group_id": "group",
            "member_id": join.member_id,
            "generation_id": joined.generation_id,
        }
        assert broker.call(SyncGroupRequest(**self.place), 3).error_code == 0

    def beat(self) -> ErrorCode:
        return ErrorCode(self.broker.call(HeartbeatRequest(**self.place), 3).error_code)


@JUMPS
def test_sessions_and_waits_notice_nothing(
    broker: MemoryBroker, clock: WorldClock, jump_ms: int
) -> None:
    member = Member(broker)
    request = fetch_request("plain", max_wait_ms=3_000)
    waiting: FakeStream = broker.send(request, 12)
    clock.set_wall(jump_ms)
    broker.pass_time(2_900)
    assert not waiting.sent
    broker.pass_time(200)
    assert waiting.sent
    for _ in range(4):
        broker.pass_time(6_000)
        assert member.beat() is ErrorCode.NONE
    broker.pass_time(10_100)
    assert member.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_year_forward_retention_takes_what_is_old_by_that_clock(
    files: MemoryFiles, broker: MemoryBroker, clock: WorldClock
) -> None:
    """All segments go, as in Kafka, the active one after a roll; logs without a limit stay."""
    fill(broker, "small-segments")
    fill(broker, "compacted")
    clock.set_wall(YEAR_MS)
    housekeep(broker)
    log = broker.log("small-segments")
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (12, 12, 1)
    assert broker.log("compacted").log_start_offset == 0
    assert produce(broker, "small-segments").base_offset == 12
    broker.close()
    # The wrong clock is corrected before the next start: no more records are removed.
    clock.set_wall(0)
    again = MemoryBroker(files.killed(), with_kernel=False, clock=clock)
    housekeep(again)
    assert again.log("small-segments").log_start_offset == 12
    assert produce(again, "small-segments").base_offset == 13
    assert count(again, "compacted") > 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_year_back_nothing_goes_and_all_is_served(
    files: MemoryFiles, broker: MemoryBroker, clock: WorldClock, restarts: bool
) -> None:
    fill(broker, "small-segments")
    fill(broker, "append-time")
    segments = len(broker.log("small-segments").segments)
    clock.set_wall(-YEAR_MS)
    if restarts:
        broker.close()
        broker = MemoryBroker(files.killed(), with_kernel=False, clock=clock)
    for _ in range(3):
        housekeep(broker)
    assert count(broker, "small-segments") == count(broker, "append-time") == 12
    assert len(broker.log("small-segments").segments) == segments
    # Producers with a right clock are a year ahead: refused only where the topic has a bound.
    assert produce(broker, "bounded-time").error_code == ErrorCode.INVALID_TIMESTAMP
    # The broker's own time goes back; a look-up by time still finds the first late enough record.
    stored = produce(broker, "append-time")
    assert (stored.error_code, stored.base_offset) == (0, 12)
    assert stored.log_append_time_ms == clock.now_ms() < NOW_MS - YEAR_MS // 2
    assert offset_at(broker, "append-time", NOW_MS) == 0
    clock.set_right()
    assert produce(broker, "small-segments").base_offset == 12


@JUMPS
def test_transactions(broker: MemoryBroker, clock: WorldClock, jump_ms: int) -> None:
    """A transaction timeout counts from a stored time, as in Kafka.

    After a year forward the timeout is over at once; after a year back it is not over early.
    """
    client = MemoryClient(broker)
    assert client.init() == 0
    client.write()
    assert client.verify() is ErrorCode.NONE
    clock.set_wall(jump_ms)
    broker.pass_time(15_000)
    is_open = client.stable_offset() < broker.log("plain").log_end_offset
    assert is_open == (jump_ms < 0)
    assert (client.end_transaction() == 0) == is_open
    fresh = MemoryClient(broker)
    assert fresh.init() == 0
    assert fresh.verify() is ErrorCode.NONE
    assert fresh.end_transaction() == 0
