"""Produce over a real socket: every version, acks, order, refusals partition by partition."""

import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from klog_broker.runtime.net.poller import SelectorPoller
from klog_broker.runtime.net.sockets import RealNetwork
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    NOW_MS,
    batch,
    create_topic,
    produce,
    produce_request,
    produced,
    read_all,
)


@pytest.fixture(scope="module", params=["epoll and sendfile", "selector and send"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    """All of it once more on what every system has."""
    borders: dict[str, object] = {}
    if request.param == "selector and send":
        borders = {"poller": SelectorPoller(), "network": RealNetwork(sends_files=False)}
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", **borders) as thread:
        yield thread


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    create_topic(client, name, partitions=3)
    return name


def records_of_version(version: int, *values: bytes) -> bytes:
    """A set in the newest format that this version of Produce takes."""
    if version >= 3:
        return batch(*values)
    builder = LegacyBuilder(1 if version >= 2 else 0, 0, Codec.NONE)
    for number, value in enumerate(values):
        builder.append(b"k%d" % number, value, NOW_MS + number, number)
    return builder.build()


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(14))
def test_every_version_appends_and_says_where(client: RawClient, version: int, acks: int) -> None:
    name = f"v{version}-acks{acks}"
    topic_id = create_topic(client, name)
    where = topic_id if version >= 13 else name
    for expected in (0, 2):
        answer = produce(
            client, where, records_of_version(version, b"a", b"b"), version=version, acks=acks
        )
        assert (answer.error_code, answer.base_offset) == (0, expected)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert [record.value for record in read_all(client, name)] == [b"a", b"b", b"a", b"b"]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(client: RawClient, topic: str, codec: Codec) -> None:
    values = [b"x" * 500, None, b"", b"y" * 500]
    assert produced(client, topic, batch(*values, codec=codec)) == 0
    assert [record.value for record in read_all(client, topic)] == values


def test_log_append_time_is_in_the_response(client: RawClient) -> None:
    create_topic(client, "append-time", message_timestamp_type="LogAppendTime")
    answer = produce(client, "append-time", batch(b"a"))
    assert answer.log_append_time_ms > NOW_MS
    (record,) = read_all(client, "append-time")
    assert record.timestamp_ms == answer.log_append_time_ms


def test_acks_0_is_not_answered(client: RawClient, topic: str) -> None:
    for number in range(20):
        client.send(produce_request(topic, batch(b"%d" % number), acks=0), 9)
    # The next response on the connection must belong to this request.
    client.call(MetadataRequest(topics=[]), 9)
    values = [record.value for record in read_all(client, topic)]
    assert values == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    "records",
    [b"", batch(b"v")[:-1], batch(b"v", is_transactional=True)],
    ids=["missing", "cut off", "transactional"],
)
def test_an_error_of_acks_0_closes_the_connection(
    broker: BrokerThread, topic: str, records: bytes
) -> None:
    with broker.client() as bad, broker.client() as good:
        bad.send(produce_request(topic, batch(b"before"), acks=0), 9)
        bad.send(produce_request(topic, records, acks=0), 9)
        assert bad.is_closed_by_broker()
        assert [record.value for record in read_all(good, topic)] == [b"before"]


def test_pipelined_requests_are_appended_and_answered_in_order(
    client: RawClient, topic: str
) -> None:
    count = 2000
    frames = b"".join(
        client.frame(produce_request(topic, batch(b"%d" % number), partition=number % 2), 9)
        for number in range(count)
    )
    client.send_bytes(frames)
    for number in range(count):
        answer = client.receive(ProduceRequest, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.index) == (0, number % 2)
        assert answer.base_offset == number // 2
    for partition in (0, 1):
        values = [record.value for record in read_all(client, topic, partition)]
        assert values == [b"%d" % number for number in range(partition, count, 2)]


def test_many_connections_to_one_partition(broker: BrokerThread, topic: str) -> None:
    clients = [broker.client() for _ in range(40)]
    offsets = []
    for round_number in range(5):
        for number, client in enumerate(clients):
            client.send(produce_request(topic, batch(b"%d-%d" % (number, round_number))), 9)
        for client in clients:
            answer = client.receive(ProduceRequest, 9).responses[0].partition_responses[0]
            offsets.append(answer.base_offset)
    assert sorted(offsets) == list(range(200))
    values = [record.value for record in read_all(clients[0], topic)]
    for number in range(40):
        mine = [value for value in values if value.startswith(b"%d-" % number)]
        assert mine == [b"%d-%d" % (number, each) for each in range(5)]
    for client in clients:
        client.close()


def test_large_batches(client: RawClient) -> None:
    create_topic(client, "large", max_message_bytes=5_000_000)
    values = [bytes([number]) * 1_500_000 for number in range(3)]
    for value in values:
        produced(client, "large", batch(value))
    assert [record.value for record in read_all(client, "large")] == values


def test_each_partition_has_its_own_error(client: RawClient, topic: str) -> None:
    corrupt = bytearray(batch(b"corrupt"))
    corrupt[-1] ^= 1

    def data(index: int, records: bytes) -> PartitionProduceData:
        return PartitionProduceData(index=index, records=records)

    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    data(0, batch(b"good")),
                    data(1, bytes(corrupt)),
                    data(9, batch(b"nowhere")),
                    data(2, batch(b"good", b"too")),
                ],
            ),
            TopicProduceData(name="absent", partition_data=[data(0, batch(b"x"))]),
        ],
    )
    response = client.call(request, 9)
    answers = [
        (topic.name, each.index, each.error_code, each.base_offset)
        for topic in response.responses
        for each in topic.partition_responses
    ]
    assert answers == [
        (topic, 0, 0, 0),
        (topic, 1, ErrorCode.CORRUPT_MESSAGE, -1),
        (topic, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (topic, 2, 0, 0),
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert len(read_all(client, topic, 2)) == 2
    assert read_all(client, topic, 1) == []


def magic_1() -> bytes:
    builder = LegacyBuilder(1, 0, Codec.NONE)
    builder.append(b"k", b"v", NOW_MS, 0)
    return builder.build()


@pytest.mark.parametrize(
    ("version", "records", "code"),
    [
        (3, None, ErrorCode.INVALID_RECORD),
        (9, b"", ErrorCode.INVALID_RECORD),
        (9, b"\0" * 20, ErrorCode.CORRUPT_MESSAGE),
        (9, magic_1(), ErrorCode.INVALID_RECORD),
        (9, batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (9, batch(b"a")[:-3], ErrorCode.INVALID_RECORD),
        (9, batch(b"a", is_control=True), ErrorCode.INVALID_RECORD),
        (6, batch(b"a" * 99, codec=Codec.ZSTD), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (9, batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "null",
        "empty",
        "too short",
        "format v1",
        "two batches",
        "cut off",
        "control",
        "zstd",
        "too large",
    ],
)
def test_records_that_may_not_be(
    client: RawClient, topic: str, version: int, records: bytes | None, code: ErrorCode
) -> None:
    answer = produce(client, topic, records, version=version, acks=1)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    if version >= 8:
        assert answer.error_message
    assert read_all(client, topic) == []
    assert produced(client, topic, batch(b"the connection goes on")) == 0


def test_zstd_since_version_7(client: RawClient, topic: str) -> None:
    assert produced(client, topic, batch(b"a" * 99, codec=Codec.ZSTD), version=7) == 0


def test_single_records_are_named(client: RawClient) -> None:
    create_topic(client, "compacted", cleanup_policy="compact")
    answer = produce(client, "compacted", batch_with_null_key())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [0]
    assert answer.log_start_offset == 0


def batch_with_null_key() -> bytes:
    from pyspark_klog.records.builder import BatchBuilder

    builder = BatchBuilder()
    builder.append(None, b"v", NOW_MS)
    return builder.build()


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_acks_must_be_known(client: RawClient, topic: str, acks: int) -> None:
    answer = produce(client, topic, batch(b"a"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert read_all(client, topic) == []


def test_internal_topics_are_the_brokers_own(broker: BrokerThread, client: RawClient) -> None:
    create_topic(client, "__consumer_offsets")
    answer = produce(client, "__consumer_offsets", batch(b"a"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with broker.client(client_id="__admin_client") as admin:
        assert produced(admin, "__consumer_offsets", batch(b"a")) == 0


def test_a_stale_topic_id(client: RawClient) -> None:
    answer = produce(client, uuid4(), batch(b"a"))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [3, 8, 12])
def test_a_transactional_batch_needs_a_transactional_id(
    client: RawClient, topic: str, version: int
) -> None:
    records = batch(b"a", is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    answer = produce(client, topic, records, version=version)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert read_all(client, topic) == []


def test_a_retried_batch_is_answered_as_the_first_time(client: RawClient, topic: str) -> None:
    def sent(sequence: int) -> bytes:
        return batch(b"%d" % sequence, producer_id=77, producer_epoch=0, base_sequence=sequence)

    offsets = [produced(client, topic, sent(sequence)) for sequence in (0, 1, 2, 1, 2, 3)]
    assert offsets == [0, 1, 2, 1, 2, 3]
    gap = produce(client, topic, sent(9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = batch(b"x", producer_id=77, producer_epoch=1, base_sequence=0)
    assert produced(client, topic, old) == 4
    fenced = produce(client, topic, sent(4))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(read_all(client, topic)) == 5


def test_replies_wait_for_the_sync_where_every_message_is_flushed(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread, thread.client() as client:
        create_topic(client, "synced", flush_messages=1)
        for acks in (1, -1):
            for _ in range(50):
                client.send(produce_request("synced", batch(b"v"), acks=acks), 9)
            for _ in range(50):
                answer = client.receive(ProduceRequest, 9).responses[0].partition_responses[0]
                assert answer.error_code == 0
        log = thread.in_loop(lambda: next(iter(thread.broker.services.logs.logs())))
        assert log.flushed_offset == log.high_watermark == log.log_end_offset == 100
        assert len(read_all(client, "synced")) == 100


def test_a_frame_that_is_no_produce_request_closes_the_connection(
    broker: BrokerThread, topic: str
) -> None:
    """The second partition's records claim more bytes than the frame has: nothing is appended."""
    with broker.client() as bad, broker.client() as good:
        request = produce_request(topic, batch(b"first"))
        data = bytearray(bad.frame(request, 3))
        at = data.index(batch(b"first"))
        data[at - 4 : at] = struct.pack(">i", 10_000_000)
        bad.send_bytes(bytes(data))
        assert bad.is_closed_by_broker()
        assert read_all(good, topic) == []
