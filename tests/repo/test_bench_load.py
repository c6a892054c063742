"""The load generators: they send valid requests, and they detect wrong responses."""

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from benchmarks._load import checks, frames, plans
from benchmarks._load.jobs import (
    AskAgain,
    ConcurrentProduce,
    FetchAll,
    Job,
    LibrdkafkaConsume,
    LibrdkafkaProduce,
    LoadFailed,
    Messages,
    PipelinedProduce,
    Target,
    TransactionalProducer,
    Transactions,
    read_job,
    write_job,
)
from benchmarks._load.transaction_frames import END_VERSION, transaction_frames
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.kernels.jit import COMPILED, numba
from tests.support.protocol.framing import split_frames

TOPIC_ID = UUID(int=7)
TARGET = Target("127.0.0.1", 9092, 1, "t", str(TOPIC_ID), partition=3)


def callable_here(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function around ones that only kernels can call; never out of a cache, which would not
    see that those have changed."""
    if COMPILED:
        return numba.njit(error_model="numpy")(function)
    return lambda *arguments: function(
        *(each.data if isinstance(each, np.ndarray) else each for each in arguments)
    )


@callable_here
def check_reply(inbox: Any, plan: Any, correlation_id: int, offset: int) -> bool:
    return checks.check_reply(inbox, 0, plan, correlation_id, offset)


@callable_here
def is_same_reply(inbox: Any, expected: Any, at: int, have: int, correlation_id: int) -> bool:
    return checks.is_same_reply(inbox, expected, at, have, len(expected) - at, correlation_id)


@callable_here
def write_sequence(buffer: Any, frame_at: int, plan: Any, sequence: int) -> None:
    checks.write_sequence(buffer, frame_at, plan, sequence)


@callable_here
def find_records(inbox: Any) -> Any:
    return checks.find_records(inbox, len(inbox))


@callable_here
def find_sized_records(inbox: Any, expected: Any, same_to: int) -> Any:
    return checks.find_sized_records(inbox, len(inbox), expected, same_to)


@callable_here
def walk_batches(inbox: Any, wanted: int, state: Any) -> int:
    return checks.walk_batches(inbox, 0, len(inbox), wanted, True, state)


def array(data: bytes) -> Any:
    return np.frombuffer(bytearray(data), np.uint8)


def produce_job(**changes: Any) -> PipelinedProduce:
    fields = {"version": 13, "acks": 1, "requests": 10, "messages": Messages(2, 20, 5)}
    return PipelinedProduce(TARGET, **{**fields, **changes})


@pytest.mark.parametrize(
    "job",
    [
        produce_job(producer_id=5),
        ConcurrentProduce(TARGET, 9, 1, 100, 20, Messages(1)),
        FetchAll(TARGET, 16, 1000, 50, check_crc=True),
        LibrdkafkaProduce(TARGET, 10, 200, {"linger.ms": "0"}),
        LibrdkafkaConsume(TARGET, 10, 200, {"check.crcs": "true"}),
        AskAgain(TARGET, 12, 3, ["00000001ff"], 10),
        Transactions(TARGET, 13, [TransactionalProducer(5, 6, "id-0")], 3, 2, Messages(4)),
    ],
)
def test_a_job_is_the_same_behind_the_pipe(job: Job) -> None:
    assert read_job(write_job(job)) == job


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_produce_frames_are_requests_whose_correlation_ids_are_their_places(
    version: int, acks: int
) -> None:
    made = frames.produce_frames(produce_job(version=version, acks=acks), ring_bytes=1000)
    places, end = split_frames(made.frames, 0, len(made.frames), 1 << 20)
    assert end == len(made.frames) == (made.ring_count + 1) * made.frame_bytes
    assert len(places) == made.ring_count + 1 > 2
    for place, (start, stop) in enumerate(places):
        header, request = decode_request(bytes(made.frames[start:stop]))
        assert isinstance(request, ProduceRequest)
        assert (header.api_version, header.correlation_id) == (version, place)
        # The last one asks for a reply, so that the end is seen with acks=0 too.
        assert request.acks == (acks or int(place == made.ring_count))
        (topic,) = request.topic_data
        assert topic.topic_id == TOPIC_ID if version >= 13 else topic.name == "t"
        (data,) = topic.partition_data
        assert data.index == 3
        assert data.records is not None
        at = start - 4 + made.batch_start_at
        assert data.records == made.frames[at : start - 4 + made.batch_end_at]
        batch = BatchView(data.records)
        batch.check_crc()
        found = list(batch.records())
        assert [(len(r.key or b""), len(r.value or b"")) for r in found] == [(5, 20), (5, 20)]


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_frames_of_one_transaction(transactional_id: str | None) -> None:
    job = produce_job(producer_id=5, producer_epoch=0, transactional_id=transactional_id)
    made = frames.produce_frames(job, ring_bytes=1000)
    places, _ = split_frames(made.frames, 0, len(made.frames), 1 << 20)
    for start, stop in places:
        _, request = decode_request(bytes(made.frames[start:stop]))
        assert isinstance(request, ProduceRequest)
        assert request.transactional_id == transactional_id
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        assert BatchView(records).is_transactional == (transactional_id is not None)


def transactions(*ids: str | None) -> Transactions:
    producers = [TransactionalProducer(5, 6, each) for each in ids]
    return Transactions(TARGET, 13, producers, 3, 2, Messages(4))


def test_the_frames_of_transactions_are_one_behind_another() -> None:
    job = transactions("id-0", "id-1")
    made = transaction_frames(job)
    produce_bytes, end_bytes = len(made.produce) // 2, len(made.ends) // 2
    for number in range(2):
        produce_at, end_at = number * produce_bytes, number * end_bytes
        _, request = decode_request(
            bytes(made.produce[produce_at + 4 : produce_at + produce_bytes])
        )
        assert isinstance(request, ProduceRequest)
        assert (request.transactional_id, request.acks) == (f"id-{number}", -1)
        (partition,) = request.topic_data[0].partition_data
        assert partition.index == number
        assert partition.records is not None
        view = BatchView(partition.records)
        assert (view.is_transactional, view.record_count) == (True, 4)
        at = produce_at + made.batch_start_at
        assert made.produce[at : at + made.batch_bytes] == bytes(partition.records)
        frame = made.ends[end_at : end_at + end_bytes]
        frame[made.producer_at : made.producer_at + 10] = struct.pack(">qh", 17, 4)
        header, ending = decode_request(bytes(frame[4:]))
        assert isinstance(ending, EndTxnRequest)
        assert (header.api_version, ending.committed) == (END_VERSION, True)
        found = (ending.transactional_id, ending.producer_id, ending.producer_epoch)
        assert found == (f"id-{number}", 17, 4)
    answer = encode_response(0, EndTxnResponse(producer_id=17, producer_epoch=4), END_VERSION)
    at = made.ended_producer_at
    assert answer[at - 2 : at + 10] == struct.pack(">hqh", 0, 17, 4)


def test_an_idempotent_producers_batches_are_in_no_transaction() -> None:
    made = transaction_frames(transactions(None))
    _, request = decode_request(bytes(made.produce[4:]))
    assert isinstance(request, ProduceRequest)
    assert request.transactional_id is None
    batch = request.topic_data[0].partition_data[0].records
    assert batch is not None
    assert not BatchView(batch).is_transactional


def test_ids_of_transactions_have_one_length() -> None:
    with pytest.raises(LoadFailed, match="not of one length"):
        transaction_frames(transactions("id-9", "id-10", "id-11"))


def test_a_sequence_is_written_with_its_crc() -> None:
    made = frames.produce_frames(produce_job(producer_id=77, producer_epoch=2), ring_bytes=1000)
    plan = np.zeros(plans.PLAN_WORDS, np.int64)
    plan[plans.PLAN_BATCH_START_AT] = made.batch_start_at
    plan[plans.PLAN_BATCH_END_AT] = made.batch_end_at
    before = bytes(made.frames)
    write_sequence(np.frombuffer(made.frames, np.uint8), made.frame_bytes, plan, 123_456)
    batch = BatchView(made.frames, made.frame_bytes + made.batch_start_at)
    batch.check_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 2, 123_456)
    assert made.frames[: made.frame_bytes] == before[: made.frame_bytes]
    assert made.frames[2 * made.frame_bytes :] == before[2 * made.frame_bytes :]


def produce_reply(correlation_id: int, offset: int, version: int, error_code: int = 0) -> bytes:
    partition = PartitionProduceResponse(
        index=3, error_code=error_code, base_offset=offset, log_start_offset=0
    )
    topic = TopicProduceResponse(
        name="t" if version < 13 else "",
        topic_id=TOPIC_ID if version >= 13 else UUID(int=0),
        partition_responses=[partition],
    )
    return encode_response(correlation_id, ProduceResponse(responses=[topic]), version)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_only_the_expected_produce_reply_passes(version: int) -> None:
    shape = frames.reply_shape(produce_job(version=version))
    plan = np.zeros(plans.PLAN_WORDS, np.int64)
    plan[plans.PLAN_REPLY_BYTES] = shape.size_bytes
    plan[plans.PLAN_REPLY_OFFSET_AT] = shape.offset_at
    good = produce_reply(4, 2_000, version)
    assert len(good) == shape.size_bytes
    assert check_reply(array(good), plan, 4, 2_000)
    assert not check_reply(array(good), plan, 5, 2_000)
    assert not check_reply(array(good), plan, 4, 2_001)
    assert not check_reply(array(produce_reply(4, 2_000, version, 45)), plan, 4, 2_000)
    longer = bytes([*good[:3], good[3] + 1, *good[4:], 0])
    assert not check_reply(array(longer), plan, 4, 2_000)


def test_only_the_same_reply_passes_whatever_its_correlation_id_was() -> None:
    expected = produce_reply(4, 2_000, 13)
    good = produce_reply(5, 2_000, 13)
    size = len(good)
    assert is_same_reply(array(good), array(expected), 0, size, 5)
    assert not is_same_reply(array(good), array(expected), 0, size, 4)
    assert not is_same_reply(array(good), array(expected), 0, size - 1, 5)
    for place in (*range(8), size - 1):
        wrong = bytearray(good)
        wrong[place] ^= 1
        assert not is_same_reply(array(wrong), array(expected), 0, size, 5), place
    # The second of two places.
    assert is_same_reply(array(expected + good), array(expected * 2), size, size, 5)


def test_the_errors_in_a_response_are_found_however_deep() -> None:
    def response(error_code: int, partition_error: int) -> FetchResponse:
        partitions = [PartitionData(error_code=code, records=b"") for code in (0, partition_error)]
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
        return FetchResponse(error_code=error_code, responses=[topic])

    assert frames.errors_in(response(0, 0)) == []
    assert frames.errors_in(response(71, 3)) == [71, 3]


def batches(first: int, counts: list[int]) -> bytes:
    result = b""
    for count in counts:
        builder = BatchBuilder(base_offset=first)
        for _ in range(count):
            builder.append(None, b"v" * 100, 0)
        result += builder.build()
        first += count
    return result


def fetch_reply(records: bytes, version: int, **changes: int) -> bytes:
    error_code = changes.pop("session_error", 0)
    partition = PartitionData(
        partition_index=3, high_watermark=9, aborted_transactions=None, records=records
    )
    partition.error_code = changes.pop("partition_error", 0)
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    response = FetchResponse(error_code=error_code, responses=[topic])
    return encode_response(1, response, version)


@pytest.mark.parametrize("version", [13, 16, 18])
def test_the_records_of_a_fetch_reply_are_found(version: int) -> None:
    records = batches(0, [200])
    reply = fetch_reply(records, version)
    start, end = find_records(array(reply))
    assert reply[start:end] == records


@pytest.mark.parametrize("version", [13, 18])
@pytest.mark.parametrize("error", ["session_error", "partition_error"])
def test_a_fetch_reply_with_an_error_is_refused(version: int, error: str) -> None:
    assert tuple(find_records(array(fetch_reply(b"", version, **{error: 6})))) == (-1, -1)


def test_a_fetch_reply_that_is_cut_is_refused() -> None:
    reply = fetch_reply(batches(0, [200]), 18)
    for size in (10, 60, 75, len(reply) // 2):
        assert tuple(find_records(array(reply[:size]))) == (-1, -1)


def walked(records: bytes, wanted: int) -> tuple[int, Any]:
    state = np.zeros(plans.STATE_WORDS, np.int64)
    return walk_batches(array(records), wanted, state), state


def test_whole_batches_are_counted_and_the_cut_one_is_left() -> None:
    records = batches(100, [5, 3])
    status, state = walked(records + batches(108, [4])[:-1], wanted=102)
    assert status == plans.STATUS_OK
    assert state[plans.STATE_NEXT_OFFSET] == 108
    assert state[plans.STATE_RECORDS] == 8
    assert state[plans.STATE_LOG_BYTES] == len(records)


@pytest.mark.parametrize(
    ("records", "wanted", "status"),
    [
        (b"", 0, plans.STATUS_NOTHING_FETCHED),
        (batches(0, [3])[:-1], 0, plans.STATUS_NOTHING_FETCHED),
        (batches(4, [3]), 3, plans.STATUS_BAD_BATCH),
        (batches(0, [3]), 3, plans.STATUS_BAD_BATCH),
        (batches(0, [3]) + batches(4, [3]), 0, plans.STATUS_BAD_BATCH),
        (batches(0, [3]) + batches(2, [3]), 0, plans.STATUS_BAD_BATCH),
        (batches(0, [3])[:-1] + b"!", 0, plans.STATUS_BAD_CRC),
        (bytes(100), 0, plans.STATUS_BAD_BATCH),
    ],
)
def test_batches_that_do_not_follow_are_seen(records: bytes, wanted: int, status: int) -> None:
    assert walked(records, wanted)[0] == status


def test_a_fetch_frame_asks_for_the_offset_that_is_written_into_it() -> None:
    frame, offset_at = frames.fetch_frame(FetchAll(TARGET, 16, 1 << 20, end_offset=10))
    frame[offset_at : offset_at + 8] = (4_711).to_bytes(8, "big")
    _, request = decode_request(bytes(frame[4:]))
    assert isinstance(request, FetchRequest)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition, partition.fetch_offset) == (TOPIC_ID, 3, 4_711)
    assert partition.partition_max_bytes == request.max_bytes == 1 << 20


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11])
def test_the_records_of_an_old_fetch_reply_are_found(version: int) -> None:
    job = FetchAll(TARGET, version, 1000, end_offset=10)
    expected, same_to = frames.fetch_reply(job)
    records = batches(0, [200])

    def find_records(error_code: int = 0, name: str = "t", cut: int = 0) -> tuple[int, int]:
        partition = PartitionData(
            partition_index=3, error_code=error_code, high_watermark=9, log_start_offset=1
        )
        partition.records = records
        topic = FetchableTopicResponse(topic=name, partitions=[partition])
        reply = encode_response(1, FetchResponse(responses=[topic]), version)
        assert cut or reply.endswith(records)
        reply = reply[: len(reply) - cut]
        start, end = find_sized_records(array(reply), array(expected), same_to)
        return start, end

    assert find_records() == (len(expected), len(expected) + len(records))
    assert find_records(error_code=6) == (-1, -1)
    assert find_records(name="u") == (-1, -1)
    assert find_records(cut=1) == (-1, -1)
    frame, offset_at = frames.fetch_frame(job)
    frame[offset_at : offset_at + 8] = (4_711).to_bytes(8, "big")
    _, request = decode_request(bytes(frame[4:]))
    assert isinstance(request, FetchRequest)
    assert (request.topics[0].topic, request.topics[0].partitions[0].fetch_offset) == ("t", 4_711)


def test_fetch_12_is_refused() -> None:
    with pytest.raises(ValueError, match="speaks Fetch to 11 and from 13 on, not 12"):
        frames.fetch_frame(FetchAll(TARGET, 12, 1000, end_offset=10))
