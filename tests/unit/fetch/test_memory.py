"""Fetch and its memory; tests of its responses are in the integration tests."""

import random
from typing import Any

import pytest

from klog_broker.log.partition_log import PartitionLog
from klog_broker.network import bounds
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.cluster.broker import NOW_MS, new_broker, topic_ids
from tests.support.raw_requests import batch, fetch_request
from tests.support.runtime.fake_network import FakeStream


@pytest.mark.parametrize("version", [4, 9, 10])
def test_what_is_not_converted_is_sent_from_the_file(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    send_file = FakeStream.send_file

    def counted(stream: FakeStream, file: Any, position: int, size_bytes: int) -> int:
        sizes.append(size_bytes)
        return send_file(stream, file, position, size_bytes)

    monkeypatch.setattr(FakeStream, "send_file", counted)
    broker = new_broker(with_kernel=False)
    builder = BatchBuilder(codec=Codec.LZ4)
    builder.append(b"key", random.Random(1).randbytes(20_000), NOW_MS)
    data = builder.build()
    log: PartitionLog = broker.log("plain")
    log.append_as_leader(data, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="plain", partitions=[partition])],
    )
    stream = broker.connect()
    stream.inbox += encode_request(RequestHeader(request.api_key, version, 1, "c"), request)
    broker.turns()
    response: Any = decode_response(bytes(stream.sent[4:]), request.api_key, version)
    (answer,) = response.responses[0].partitions
    assert (answer.error_code, len(answer.records)) == (0, len(data))
    assert sizes == [len(data)]


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_a_few_records_are_sent_at_once_with_what_stands_around_them(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_parts: list[int] = []
    send = FakeStream.send

    def counted(stream: FakeStream, parts: list[Any]) -> int:
        sent_parts.append(len(parts))
        return send(stream, parts)

    monkeypatch.setattr(FakeStream, "send", counted)
    broker = new_broker(with_kernel=False)
    data = batch(b"value")
    log: PartitionLog = broker.log("plain")
    log.append_as_leader(data, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    where: dict[str, Any] = {"topic": "plain"}
    if version >= 13:
        where = {"topic_id": topic_ids()["plain"]}
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(**where, partitions=[partition])])
    stream = broker.connect()
    stream.inbox += encode_request(RequestHeader(request.api_key, version, 1, "c"), request)
    broker.turns()
    response: Any = decode_response(bytes(stream.sent[4:]), request.api_key, version)
    (answer,) = response.responses[0].partitions
    assert (answer.error_code, len(answer.records)) == (0, len(data))
    assert sent_parts == [1]


@pytest.mark.parametrize("version", [12, 13])
def test_copies_for_a_client_that_does_not_read_stay_within_the_bound(version: int) -> None:
    """Without the bound, the possible responses would take four times as much."""
    broker = new_broker(with_kernel=False)
    data = batch(random.Random(1).randbytes(16_000))
    log: PartitionLog = broker.log("plain")
    log.append_as_leader(data, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    request = fetch_request(topic_ids()["plain"] if version >= 13 else "plain")
    stream = broker.connect()
    stream.room_bytes = 0
    for number in range(bounds.PENDING_RESPONSES):
        header = RequestHeader(request.api_key, version, number, "c")
        stream.inbox += encode_request(header, request)
    broker.turns()
    counts = log.counts
    copied_bytes = counts.bytes_out
    assert 0 < copied_bytes <= bounds.PENDING_RESPONSE_BYTES + len(data)
    stream.room_bytes = 1 << 30
    for _ in range(bounds.PENDING_RESPONSES):
        broker.broker.loop.run_turn(0)
    assert counts.bytes_out == bounds.PENDING_RESPONSES * len(data) < len(stream.sent)
