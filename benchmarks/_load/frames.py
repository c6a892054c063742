"""Encoded requests, and the places of the changing fields in them and in their responses."""

import random
import time
from typing import Any, NamedTuple
from uuid import UUID

from benchmarks._load.jobs import (
    ConcurrentProduce,
    FetchAll,
    Messages,
    PipelinedProduce,
    Target,
    Transactions,
)
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.builder import BatchBuilder

CLIENT_ID = "klog-bench"
FIRST_TOPIC_ID_VERSION_PRODUCE = 13
FIRST_TOPIC_ID_VERSION_FETCH = 13
LAST_SIZED_VERSION_FETCH = 11
MAX_WAIT_MS = 500
_PRODUCE_TIMEOUT_MS = 30_000
_NO_UUID = UUID(int=0)
# A value that can be found in an encoded frame, because no other field looks like this.
_MARK = 0x5A17_C0DE_0B5E_55ED
_MARK_BYTES = _MARK.to_bytes(8, "big")


class ProduceFrames(NamedTuple):
    """``ring_count`` frames of one size, then the last one; correlation ids are their places."""

    frames: bytearray
    ring_count: int
    frame_bytes: int
    batch_start_at: int
    batch_end_at: int


class ReplyShape(NamedTuple):
    """The response to a Produce request of one partition, without an error."""

    size_bytes: int
    offset_at: int


def one_batch(
    messages: Messages,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """A batch with its records' values (and keys) from a fixed seed."""
    noise = random.Random(messages.per_request)
    now_ms = time.time_ns() // 1_000_000
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1 if producer_id < 0 else 0,
        is_transactional=is_transactional,
    )
    for _ in range(messages.per_request):
        key = noise.randbytes(messages.key_bytes) if messages.key_bytes else None
        builder.append(key, noise.randbytes(messages.value_bytes), now_ms)
    return builder.build()


def produce_frame(
    target: Target,
    version: int,
    acks: int,
    correlation_id: int,
    batch: bytes,
    transactional_id: str | None = None,
) -> bytes:
    """A Produce request with one batch."""
    by_id = version >= FIRST_TOPIC_ID_VERSION_PRODUCE
    topic = TopicProduceData(
        name="" if by_id else target.topic,
        topic_id=target.uuid if by_id else _NO_UUID,
        partition_data=[PartitionProduceData(index=target.partition, records=batch)],
    )
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=_PRODUCE_TIMEOUT_MS,
        topic_data=[topic],
    )
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, CLIENT_ID)
    return encode_request(header, request)


def produce_frames(job: PipelinedProduce, ring_bytes: int) -> ProduceFrames:
    """Frames of about ``ring_bytes`` in all, and the last one, which requests a response."""
    owner = job.transactional_id
    batch = one_batch(
        job.messages,
        producer_id=job.producer_id,
        producer_epoch=job.producer_epoch,
        is_transactional=owner is not None,
    )
    first = produce_frame(job.target, job.version, job.acks, 0, batch, owner)
    count = max(1, ring_bytes // len(first))
    frames = bytearray()
    for place in range(count):
        frames += produce_frame(job.target, job.version, job.acks, place, batch, owner)
    frames += produce_frame(job.target, job.version, job.acks or 1, count, batch, owner)
    start = first.index(batch)
    return ProduceFrames(frames, count, len(first), start, start + len(batch))


def reply_shape(job: PipelinedProduce | ConcurrentProduce | Transactions) -> ReplyShape:
    """The shape of a broker's response without an error."""
    by_id = job.version >= FIRST_TOPIC_ID_VERSION_PRODUCE
    partition = PartitionProduceResponse(
        index=job.target.partition, base_offset=_MARK, log_start_offset=0
    )
    topic = TopicProduceResponse(
        name="" if by_id else job.target.topic,
        topic_id=job.target.uuid if by_id else _NO_UUID,
        partition_responses=[partition],
    )
    frame = encode_response(0, ProduceResponse(responses=[topic]), job.version)
    return ReplyShape(len(frame), frame.index(_MARK_BYTES))


def errors_in(message: Any) -> list[int]:
    """The error codes other than 0 anywhere in a response."""
    if isinstance(message, list):
        return [code for each in message for code in errors_in(each)]
    found: list[int] = []
    for name in getattr(message, "__fields__", ()):
        value = getattr(message, name)
        found += errors_in(value) if name != "error_code" else [value] if value else []
    return found


def fetch_frame(job: FetchAll) -> tuple[bytearray, int]:
    """A Fetch request of one partition, and the place of the fetch offset in it."""
    by_id = job.version >= FIRST_TOPIC_ID_VERSION_FETCH
    if not by_id and job.version > LAST_SIZED_VERSION_FETCH:
        raise ValueError(f"the generator speaks Fetch to 11 and from 13 on, not {job.version}")
    partition = FetchPartition(
        partition=job.target.partition, fetch_offset=_MARK, partition_max_bytes=job.chunk_bytes
    )
    request = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=job.chunk_bytes,
        topics=[
            FetchTopic(
                topic="" if by_id else job.target.topic,
                topic_id=job.target.uuid if by_id else _NO_UUID,
                partitions=[partition],
            )
        ],
    )
    frame = encode_request(RequestHeader(ApiKey.FETCH, job.version, 0, CLIENT_ID), request)
    return bytearray(frame), frame.index(_MARK_BYTES)


def fetch_reply(job: FetchAll) -> tuple[bytes, int]:
    """A Fetch response without records before version 12, and up to where every response equals it.

    For newer versions, which encode the records' size otherwise, the result is (one byte, 0).
    """
    if job.version > LAST_SIZED_VERSION_FETCH:
        return b"\0", 0
    partition = PartitionData(
        partition_index=job.target.partition, high_watermark=_MARK, records=b""
    )
    topic = FetchableTopicResponse(topic=job.target.topic, partitions=[partition])
    frame = encode_response(0, FetchResponse(responses=[topic]), job.version)
    return frame, frame.index(_MARK_BYTES)
