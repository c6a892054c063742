"""Produce requests: encodes batches as one request, and finds each batch's row in the response."""

from collections.abc import Iterator, Sequence

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import ClusterView
from pyspark_klog.client.errors import ReplyUnreadable, UnsupportedByBroker
from pyspark_klog.client.producer.batches import ADDS_IMPLICITLY, Batch, InTransaction
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.ids import NO_TOPIC_ID, TopicPartition
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.down_conversion import down_convert

_FIRST_WITH_V2 = 3
_FIRST_WITH_ZSTD = 7
_NAMES_UNTIL = 12
_FIRST_THAT_ADDS = 12
"""From this version on a Produce request also adds its partitions to the transaction, instead of
AddPartitionsToTxn (KIP-890)."""


def send_batches(
    client: BlockingClient,
    link: Link,
    batches: Sequence[Batch],
    *,
    acks: int,
    timeout_ms: int,
    is_idempotent: bool,
    transaction: InTransaction | None = None,
) -> Call[ProduceResponse]:
    """Send one Produce request with these batches, each of a different partition, in a version
    that supports all of them.

    Sets the ``topic_id`` of each batch to the topic id in the request; all zero if the request
    names the topic.

    :raises UnsupportedByBroker: if the broker is too old for the batches' codec or headers, for
        idempotence or for the transaction
    """
    low, high = versions(client.view, batches, is_idempotent=is_idempotent, transaction=transaction)
    version = link.connection.version(ApiKey.PRODUCE, low, high)
    request = produce_request(
        client.view,
        batches,
        version,
        acks=acks,
        timeout_ms=timeout_ms,
        is_idempotent=is_idempotent,
        transaction=transaction,
    )
    return client.send(link, request, ProduceResponse, version, expects_response=acks != 0)


def produce_request(
    view: ClusterView,
    batches: Sequence[Batch],
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    is_idempotent: bool,
    transaction: InTransaction | None = None,
) -> ProduceRequest:
    """Make the request of `send_batches` in a version that `versions` allows."""
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms)
    if transaction is not None:
        request.transactional_id = transaction.transactional_id
    is_transactional = transaction is not None
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name = batch.partition.topic
        row = topics.get(name)
        if row is None:
            row = topics[name] = TopicProduceData()
            if version > _NAMES_UNTIL:
                row.topic_id = view.topic_id(name)
            else:
                row.name = name
            request.topic_data.append(row)
        batch.topic_id = row.topic_id
        records = _bytes_of(
            batch, version, is_idempotent=is_idempotent, is_transactional=is_transactional
        )
        data = PartitionProduceData(index=batch.partition.partition, records=records)
        row.partition_data.append(data)
    return request


def pair_responses(
    response: ProduceResponse, batches: Sequence[Batch]
) -> Iterator[tuple[Batch, PartitionProduceResponse]]:
    """Pair each batch of a request with its row of the response: the result for its partition.

    :raises ReplyUnreadable: if the response has no row for a batch's partition
    """
    # Find the topics by the ids in the request and not by those in the metadata: meanwhile a topic
    # may have been deleted, or created again with another id.
    names = {batch.topic_id: batch.partition.topic for batch in batches}
    rows: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for row in topic.partition_responses:
            rows[TopicPartition(name, row.index)] = row
    for batch in batches:
        answer = rows.get(batch.partition)
        if answer is None:
            raise ReplyUnreadable(f"a reply to Produce leaves out {batch.partition}")
        yield batch, answer


def versions(
    view: ClusterView,
    batches: Sequence[Batch],
    *,
    is_idempotent: bool,
    transaction: InTransaction | None = None,
) -> tuple[int, int | None]:
    """Return the lowest and the highest version (None: the newest) that support the batches."""
    has_ids = all(view.topic_id(b.partition.topic) != NO_TOPIC_ID for b in batches)
    low = 0
    if any(BatchView(b.data).codec is Codec.ZSTD for b in batches):
        low = _FIRST_WITH_ZSTD
    elif is_idempotent:
        low = _FIRST_WITH_V2
    high = None if has_ids else _NAMES_UNTIL
    if transaction is not None and transaction.version >= ADDS_IMPLICITLY:
        low = _FIRST_THAT_ADDS
    elif transaction is not None:
        high = _FIRST_THAT_ADDS - 1
    return low, high


def _bytes_of(
    batch: Batch, version: int, *, is_idempotent: bool, is_transactional: bool
) -> bytes | memoryview:
    view = BatchView(batch.data)
    if version < _FIRST_WITH_V2:
        if any(record.headers for record in view.records()):
            raise UnsupportedByBroker("record headers need a Kafka broker from 0.11 on")
        return down_convert(batch.data, 1 if version >= 2 else 0).data
    if is_idempotent:
        numbers = (*batch.identity, batch.sequence)
        has = (view.producer_id, view.producer_epoch, view.base_sequence)
        if has != numbers or view.is_transactional is not is_transactional:
            view.set_producer_state(*numbers, is_transactional=is_transactional)
    return memoryview(batch.data)
