"""Produce requests for brokers in memory, their responses, and the values in the logs."""

from typing import Any

from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.builder import BatchBuilder
from tests.support.cluster.broker import NOW_MS, MemoryBroker, topic_ids
from tests.support.records.record_sets import iterate
from tests.support.runtime.fake_network import FakeStream

VERSION = 9


def batch(*values: bytes, timestamp_ms: int = NOW_MS, **options: Any) -> bytes:
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(b"key", value, timestamp_ms)
    return builder.build()


def frame(
    records: bytes,
    topic: str = "plain",
    partition: int = 0,
    acks: int = 1,
    version: int = VERSION,
    correlation_id: int = 0,
    transactional_id: str | None = None,
) -> bytes:
    where: Any = {"topic_id": topic_ids()[topic]} if version >= 13 else {"name": topic}
    rows = [PartitionProduceData(index=partition, records=records)]
    topics = [TopicProduceData(**where, partition_data=rows)]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics
    )
    return encode_request(RequestHeader(ApiKey.PRODUCE, version, correlation_id, "c"), request)


def produce_responses(stream: FakeStream, version: int = VERSION) -> list[PartitionProduceResponse]:
    """Decode all responses in the sent bytes, and clear these; each has one partition."""
    found = []
    sent, position = bytes(stream.sent), 0
    while position < len(sent):
        size = int.from_bytes(sent[position : position + 4], "big")
        response: Any = decode_response(
            sent[position + 4 : position + 4 + size], ApiKey.PRODUCE, version
        )
        found += [each for topic in response.responses for each in topic.partition_responses]
        position += 4 + size
    stream.sent.clear()
    return found


def values(broker: MemoryBroker, topic: str = "plain", partition: int = 0) -> list[bytes | None]:
    log = broker.log(topic, partition)
    found: list[bytes | None] = []
    for segment in log.segments:
        data = segment.log_file.pread(segment.size_bytes, 0)
        records = list(iterate(data))
        assert [each.offset for each in records] == list(
            range(segment.base_offset, segment.base_offset + len(records))
        )
        found += [each.value for each in records]
    return found
