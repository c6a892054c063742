"""The requests that most broker tests make, with what they do not care about filled in."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.create_topics import CreatableTopicConfig as Config
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from tests.support.raw_client import RawClient
from tests.support.records.record_sets import iterate

NOW_MS = 1_700_000_000_000


def batch(*values: bytes | None, codec: Codec = Codec.NONE, **options: Any) -> bytes:
    """A v2 batch with these values, keys ``k0``, ``k1`` ..."""
    builder = BatchBuilder(codec=codec, **options)
    for number, value in enumerate(values):
        builder.append(b"k%d" % number, value, NOW_MS + number)
    return builder.build()


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: object) -> UUID:
    """Creates a topic (``max_message_bytes=5`` sets max.message.bytes); returns its id."""
    rows = [Config(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert response.topics[0].error_code == 0, response
    topic_id: UUID = response.topics[0].topic_id
    return topic_id


def topic_id_of(client: RawClient, name: str) -> UUID:
    """The id that Metadata has. The first request creates the topic if it is not there."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    response = client.call(request, 12)
    if response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        response = client.call(request, 12)
    assert response.topics[0].error_code == 0, response
    topic_id: UUID = response.topics[0].topic_id
    return topic_id


def produce_request(
    topic: str | UUID,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 10_000,
    **options: Any,
) -> ProduceRequest:
    """One partition's records."""
    where = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(**where, partition_data=[data])],
        **options,
    )


def produce(
    client: RawClient,
    topic: str | UUID,
    records: bytes | None,
    version: int | None = None,
    **options: Any,
) -> PartitionProduceResponse:
    """Produces to one partition; returns its answer, whatever it is."""
    if version is None:
        version = 13 if isinstance(topic, UUID) else 9
    response = client.call(produce_request(topic, records, **options), version)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def produced(client: RawClient, topic: str | UUID, records: bytes, **options: Any) -> int:
    """Produces with success; returns the base offset."""
    answer = produce(client, topic, records, **options)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.base_offset


def fetch_request(
    topic: str | UUID,
    offset: int = 0,
    partitions: Sequence[int] = (0,),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    **options: Any,
) -> FetchRequest:
    """The same offset of some partitions."""
    where = {"topic_id": topic} if isinstance(topic, UUID) else {"topic": topic}
    rows = [
        FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
        )
        for partition in partitions
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[FetchTopic(**where, partitions=rows)],
        **options,
    )


def fetch(
    client: RawClient, topic: str | UUID, version: int | None = None, **options: Any
) -> FetchResponse:
    """Send a Fetch; return the whole response."""
    if version is None:
        version = 18 if isinstance(topic, UUID) else 12
    response: FetchResponse = client.call(fetch_request(topic, **options), version)
    return response


def first_partition(response: FetchResponse) -> PartitionData:
    """Return the response's row of its first partition."""
    return response.responses[0].partitions[0]


def records_of(data: PartitionData, from_offset: int = 0) -> list[Record]:
    """The records that were fetched, CRCs checked, without those before ``from_offset``."""
    assert data.error_code == ErrorCode.NONE, data
    found = iterate(bytes(data.records or b""), allow_partial=True)
    return [record for record in found if record.offset >= from_offset]


def read_all(
    client: RawClient, topic: str | UUID, partition: int = 0, offset: int = 0
) -> list[Record]:
    """All records of a partition up to its high watermark."""
    records: list[Record] = []
    while True:
        data = first_partition(fetch(client, topic, offset=offset, partitions=(partition,)))
        found = records_of(data, offset)
        if not found:
            return records
        records += found
        offset = found[-1].offset + 1
