"""The connection as a state machine: versions first, replies in order, deadlines, foreign peers."""

from collections.abc import Sequence

import pytest

from pyspark_klog.client.errors import (
    ClientError,
    ConnectionFailed,
    ReplyUnreadable,
    RequestTimedOut,
    UnsupportedByBroker,
)
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request


def _connection(max_response_bytes: int = 1 << 20) -> Connection:
    return Connection(
        "broker:9092",
        client_id="test",
        request_timeout_ms=1_000,
        max_response_bytes=max_response_bytes,
    )


def _sent(connection: Connection) -> list[tuple[int, int, Request]]:
    """Return the requests that the connection sends, as (correlation id, version, message)."""
    data = bytearray()
    while (part := connection.to_send()) is not None:
        data += part
        connection.sent(len(part))
    requests = []
    while data:
        size = int.from_bytes(data[:4], "big")
        header, message = decode_request(bytes(data[4 : 4 + size]))
        requests.append((header.correlation_id, header.api_version, message))
        del data[: 4 + size]
    return requests


def _feed(connection: Connection, data: bytes, step: int = 1 << 30) -> None:
    position = 0
    while position < len(data):
        with connection.receive_buffer() as buffer:
            count = min(step, len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
        connection.received(count)
        position += count


def _versions(*rows: tuple[ApiKey, int, int], error: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in rows]
    return ApiVersionsResponse(error_code=error, api_keys=keys)


def _ready(
    rows: Sequence[tuple[ApiKey, int, int]] = ((ApiKey.METADATA, 0, 12),),
) -> Connection:
    connection = _connection()
    connection.connected(0)
    [(correlation_id, version, _)] = _sent(connection)
    _feed(connection, encode_response(correlation_id, _versions(*rows), version))
    assert connection.state is ClientConnectionState.READY
    return connection


def test_versions_are_asked_for_first_and_the_newest_common_one_is_chosen() -> None:
    connection = _ready([(ApiKey.METADATA, 3, 8), (ApiKey.FETCH, 0, 11)])
    assert connection.version(ApiKey.METADATA) == 8
    assert connection.version(ApiKey.FETCH, high=4) == 4


def test_an_api_that_the_broker_lacks_is_named() -> None:
    connection = _ready([(ApiKey.FETCH, 0, 3)])
    with pytest.raises(UnsupportedByBroker, match=r"broker:9092 has no version of METADATA"):
        connection.version(ApiKey.METADATA)
    with pytest.raises(UnsupportedByBroker, match=r"has versions 0 to 3 of FETCH.* 4 to 18"):
        connection.version(ApiKey.FETCH, low=4)


@pytest.mark.parametrize(
    ("rows", "next_version"),
    [([(ApiKey.API_VERSIONS, 0, 3)], 3), ([(ApiKey.API_VERSIONS, 0, 0)], 0), ([], 0)],
)
def test_an_older_broker_is_asked_again_in_a_version_it_knows(
    rows: list[tuple[ApiKey, int, int]], next_version: int
) -> None:
    connection = _connection()
    connection.connected(0)
    [(first, _, _)] = _sent(connection)
    _feed(connection, encode_response(first, _versions(*rows, error=35), 0))
    assert connection.state is ClientConnectionState.NEGOTIATING
    [(second, version, _)] = _sent(connection)
    assert version == next_version
    _feed(connection, encode_response(second, _versions((ApiKey.METADATA, 0, 1)), version))
    assert connection.version(ApiKey.METADATA) == 1


def test_a_broker_that_refuses_all_versions_is_given_up() -> None:
    connection = _connection()
    connection.connected(0)
    for _ in range(2):
        [(correlation_id, version, _)] = _sent(connection)
        _feed(connection, encode_response(correlation_id, _versions(error=35), 0))
    assert version == 0
    assert connection.state is ClientConnectionState.CLOSED
    assert isinstance(connection.error, ClientError)


@pytest.mark.parametrize("step", [1, 3, 1 << 30])
def test_replies_come_to_their_calls_in_order_whatever_the_pieces(step: int) -> None:
    connection = _ready()
    calls = [connection.send(MetadataRequest(), MetadataResponse, 8, 0) for _ in range(3)]
    ids = [correlation_id for correlation_id, _, _ in _sent(connection)]
    replies = b"".join(
        encode_response(i, MetadataResponse(cluster_id=f"c{n}"), 8) for n, i in enumerate(ids)
    )
    _feed(connection, replies, step)
    assert [call.result().cluster_id for call in calls] == ["c0", "c1", "c2"]
    assert connection.in_flight == 0


def test_a_large_reply_is_received_whole() -> None:
    connection = _ready()
    call = connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    [(correlation_id, _, _)] = _sent(connection)
    name = "c" * 30_000
    topics = MetadataResponse(cluster_id=name, controller_id=7)
    topics.brokers = []
    reply = encode_response(correlation_id, topics, 8)
    _feed(connection, reply * 1 + b"", 1000)
    assert call.result().cluster_id == name


def test_a_late_reply_ends_the_connection_and_every_call() -> None:
    connection = _ready()
    calls = [connection.send(MetadataRequest(), MetadataResponse, 8, now) for now in (0, 500)]
    assert connection.next_deadline_ms() == 1_000
    connection.on_deadline(999)
    assert connection.state is ClientConnectionState.READY
    connection.on_deadline(1_000)
    for call in calls:
        with pytest.raises(RequestTimedOut, match="METADATA"):
            call.result()


def test_a_lost_connection_fails_what_waits_and_takes_nothing_more() -> None:
    connection = _ready()
    call = connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    connection.received(0)
    with pytest.raises(ConnectionFailed, match="closed the connection"):
        call.result()
    with pytest.raises(ConnectionFailed):
        connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    assert connection.to_send() is None


def test_a_reply_to_another_request_ends_the_connection() -> None:
    connection = _ready()
    call = connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    _feed(connection, encode_response(99, MetadataResponse(), 8))
    with pytest.raises(ReplyUnreadable, match="answered request 99; expected 1"):
        call.result()


def test_a_reply_that_is_cut_short_is_unreadable() -> None:
    connection = _ready()
    call = connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    [(correlation_id, _, _)] = _sent(connection)
    body = correlation_id.to_bytes(4, "big") + b"\0\0"
    _feed(connection, len(body).to_bytes(4, "big") + body)
    with pytest.raises(ReplyUnreadable, match="METADATA v8 is unreadable"):
        call.result()


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 20) + 1, 0x48545450])
def test_a_size_that_no_reply_has_is_refused_before_memory_is_taken(size: int) -> None:
    connection = _connection()
    connection.connected(0)
    _feed(connection, size.to_bytes(4, "big", signed=True) + b"P/1.1")
    assert connection.state is ClientConnectionState.CLOSED
    assert "expected 4 to 1048576" in str(connection.error)


def test_a_request_without_a_reply_is_done_when_it_was_sent() -> None:
    connection = _ready()
    first, second = (
        connection.send(MetadataRequest(), MetadataResponse, 8, 0, expects_response=False)
        for _ in range(2)
    )
    assert connection.in_flight == 0
    assert connection.next_deadline_ms() is None
    assert not first.is_done
    while not first.is_done:
        connection.sent(1)
    assert not second.is_done
    connection.lost(ConnectionFailed("gone"))
    assert first.error is None
    assert isinstance(second.error, ConnectionFailed)
