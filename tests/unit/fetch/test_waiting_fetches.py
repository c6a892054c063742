"""A waiting or an early Fetch of a log that is being synced, or that fails."""

from typing import Any

import pytest

from klog_broker.log.segment.segment import Segment
from pyspark_klog.errors import ErrorCode, InvariantViolation
from pyspark_klog.protocol.apis.fetch import FetchRequest, PartitionData
from pyspark_klog.protocol.apis.produce import ProduceRequest
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker
from tests.support.raw_requests import batch, fetch_request, produce_request, records_of
from tests.support.runtime.fake_network import FakeStream

FETCH, PRODUCE = 12, 9
CONSUMER, DEBUGGING_CONSUMER, COPY = -1, -2, -3
LONG_MS = 600_000


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def fetched(stream: FakeStream) -> PartitionData:
    answer = answer_of(stream, FetchRequest(), FETCH)
    found: PartitionData = answer.responses[0].partitions[0]
    return found


def produced(stream: FakeStream) -> Any:
    return answer_of(stream, ProduceRequest(), PRODUCE).responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_consumer_stays_below_the_high_watermark_while_a_sync_is_held(
    broker: MemoryBroker, acks: int
) -> None:
    broker.helpers.is_held = True
    writer = broker.send(produce_request("flushed", batch(b"x"), acks=acks), PRODUCE)
    assert not writer.sent, "flush.messages=1: the reply waits for the sync"
    for consumer in (CONSUMER, DEBUGGING_CONSUMER):
        early = fetched(broker.send(fetch_request("flushed", replica_id=consumer), FETCH))
        assert (early.high_watermark, records_of(early)) == (0, [])
    copy = fetched(broker.send(fetch_request("flushed", replica_id=COPY), FETCH))
    assert [each.value for each in records_of(copy)] == [b"x"]
    waiting = broker.send(fetch_request("flushed", max_wait_ms=LONG_MS), FETCH)
    assert not waiting.sent
    broker.helpers.release()
    broker.turns()
    assert produced(writer).error_code == 0
    found = fetched(waiting)
    assert (found.high_watermark, [each.value for each in records_of(found)]) == (1, [b"x"])


def test_a_failed_log_wakes_the_fetches_that_wait_for_it(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = broker.send(fetch_request("plain", max_wait_ms=LONG_MS), FETCH)
    other = broker.send(fetch_request("small-messages", max_wait_ms=LONG_MS), FETCH)

    def fail(*_: object) -> None:
        raise InvariantViolation("for the test")

    monkeypatch.setattr(Segment, "commit", fail)
    broker.send(produce_request("plain", batch(b"x"), acks=0), PRODUCE)
    assert fetched(waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not other.sent


def test_a_failed_directory_wakes_the_fetches_that_wait_for_its_logs(broker: MemoryBroker) -> None:
    waiting = [
        broker.send(fetch_request(topic, max_wait_ms=LONG_MS), FETCH)
        for topic in ("plain", "small-messages")
    ]
    broker.files.fail_sync_at = broker.files.syncs + 1
    broker.send(produce_request("flushed", batch(b"x"), acks=0), PRODUCE)
    codes = [fetched(stream).error_code for stream in waiting]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
