"""A client may send anything: others are still served; a connection with lost framing is closed."""

import logging
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from klog_broker.network.bounds import METADATA_REQUEST_BYTES
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.protocol.keys import ApiKey
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import ConnectionClosed, RawClient
from tests.support.raw_requests import batch, create_topic, fetch_request, produce_request


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerThread(data, {"socket.request.max.bytes": 100_000}) as thread:
        yield thread


@pytest.fixture
def bystander(broker: BrokerThread) -> Iterator[RawClient]:
    """Another client, which is served before and after."""
    with broker.client() as client:
        client.call(MetadataRequest(topics=[]), 9)
        yield client
        client.call(MetadataRequest(topics=[]), 9)
    assert broker.broker.services.requests.bugs.total == 0


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def header(api_key: int, version: int, client_id: bytes = b"\0\1x") -> bytes:
    return struct.pack(">hhi", api_key, version, 99) + client_id


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 100_001),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["negative", "zero", "too short", "too large", "largest", "HTTP", "TLS"],
)
def test_a_size_that_cannot_be(broker: BrokerThread, bystander: RawClient, data: bytes) -> None:
    with broker.client() as client:
        client.send_bytes(data)
        assert client.is_closed_by_broker()


@pytest.mark.parametrize("first_bytes", [4, 8], ids=["size alone", "size and key"])
def test_only_produce_may_be_larger_than_what_becomes_objects(
    tmp_path: Path, first_bytes: int
) -> None:
    size = METADATA_REQUEST_BYTES + 1
    frame = struct.pack(">i", size) + header(ApiKey.METADATA, 0)
    frame += bytes(4 + size - len(frame))
    with BrokerThread(tmp_path / "data") as broker:
        with broker.client() as client, suppress(ConnectionError):
            client.send_bytes(frame[:first_bytes])
            eventually(lambda: broker.in_loop(lambda: True), what="the first bytes have come")
            client.send_bytes(frame[first_bytes:])
            assert client.is_closed_by_broker()
        with broker.client() as client:
            create_topic(client, "t", max_message_bytes=2 * size)
            response = client.call(produce_request("t", batch(bytes(size))), 9)
            assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("key", [-1, 4, 7, 24, 58, 79, 1000, 32767])
def test_an_api_that_is_not_served(broker: BrokerThread, bystander: RawClient, key: int) -> None:
    with broker.client() as client:
        client.send_bytes(framed(header(key, 0)))
        assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.PRODUCE, 14), (ApiKey.FETCH, -1), (ApiKey.METADATA, 99), (ApiKey.JOIN_GROUP, 32767)],
)
def test_a_version_that_is_not_served(
    broker: BrokerThread, bystander: RawClient, key: int, version: int
) -> None:
    with broker.client() as client:
        client.send_bytes(framed(header(key, version) + b"\0"))
        assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    "content",
    [
        header(ApiKey.METADATA, 1),
        header(ApiKey.METADATA, 1) + struct.pack(">i", 2**31 - 1),
        header(ApiKey.METADATA, 1) + struct.pack(">i", 1) + struct.pack(">h", 500) + b"x",
        header(ApiKey.METADATA, 1) + struct.pack(">i", 1) + struct.pack(">h", 2) + b"\xff\xfe",
        header(ApiKey.METADATA, 1, b"\x7f\xff"),
        header(ApiKey.METADATA, 1, b"\0\2\xc3\x28"),
        header(ApiKey.METADATA, 9) + b"\xff\xff\xff\xff\xff\xff",
        header(ApiKey.API_VERSIONS, 3) + b"\0\xff",
    ],
    ids=[
        "no body",
        "count beyond the frame",
        "length beyond the frame",
        "no UTF-8",
        "client id beyond the frame",
        "client id no UTF-8",
        "endless varint",
        "tag section beyond the frame",
    ],
)
def test_a_request_that_cannot_be_read(
    broker: BrokerThread, bystander: RawClient, content: bytes
) -> None:
    before = broker.counter("requests-malformed")
    with broker.client() as client:
        client.send_bytes(framed(content))
        assert client.is_closed_by_broker()
    assert broker.counter("requests-malformed") == before + 1


def test_earlier_requests_are_answered_before_the_connection_ends(
    broker: BrokerThread, bystander: RawClient
) -> None:
    with broker.client() as client:
        good = client.frame(MetadataRequest(topics=[]), 9)
        client.send_bytes(good * 3 + framed(header(999, 0)) + good)
        for _ in range(3):
            assert client.receive(MetadataRequest, 9).brokers
        assert client.is_closed_by_broker()


def test_one_line_in_the_log_for_many_bad_requests(
    broker: BrokerThread, bystander: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    before = broker.counter("connections-closed-for-bad-input")
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            with broker.client() as client:
                client.send_bytes(framed(header(999, 0)))
                assert client.is_closed_by_broker()
    assert broker.counter("connections-closed-for-bad-input") == before + 20
    assert len([each for each in caplog.records if each.levelno >= logging.INFO]) <= 1


def test_mutated_requests_do_no_harm(broker: BrokerThread, bystander: RawClient) -> None:
    """Answered or refused, but neither a crash nor a hang nor a bug's traceback."""
    create_topic(bystander, "mutated")
    random_source = random.Random(20240)
    client = broker.client()
    templates = [
        (MetadataRequest(topics=[MetadataRequestTopic(name="mutated")]), 9),
        (produce_request("mutated", batch(b"value" * 9)), 3),
        (produce_request("mutated", batch(b"value" * 9), acks=1), 9),
        (fetch_request("mutated"), 4),
        (fetch_request("mutated"), 12),
    ]
    outcomes = {"answered": 0, "closed": 0}
    for _ in range(600):
        data = bytearray(client.frame(*random_source.choice(templates)))
        for _ in range(random_source.randint(1, 4)):
            # Size and long poll stay: others would only make the broker wait.
            position = random_source.randrange(min(30, len(data) - 5), len(data))
            data[position] = random_source.randrange(256)
        if random_source.random() < 0.2:
            del data[random_source.randrange(14, len(data)) :]
            data[:4] = struct.pack(">i", len(data) - 4)
        client.send_bytes(bytes(data))
        client.send_bytes(client.frame(MetadataRequest(topics=[]), 9))
        try:
            while client.receive_frame()[:4] != struct.pack(">i", client._correlation_id):
                pass
            outcomes["answered"] += 1
        except ConnectionClosed:
            outcomes["closed"] += 1
            client.close()
            client = broker.client()
    client.close()
    assert min(outcomes.values()) > 20


def test_a_client_that_never_finishes_its_frame(broker: BrokerThread, bystander: RawClient) -> None:
    with broker.client() as client:
        client.send_bytes(framed(header(ApiKey.METADATA, 1) + b"\0" * 500)[:100])
        assert bystander.call(MetadataRequest(topics=[]), 9).brokers
    count = broker.broker.server
    eventually(lambda: count.connection_count == 1)
