"""Bytes over TLS: what OpenSSL holds back is fetched, and each direction may wait for the other."""

import selectors
import ssl
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_klog.client.errors import ConnectionFailed, TlsFailed
from pyspark_klog.client.security.tls_link import TlsLink
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.protocol.headers import encode_response
from pyspark_klog.protocol.keys import ApiKey

READ, BOTH = selectors.EVENT_READ, selectors.EVENT_READ | selectors.EVENT_WRITE
TLS_RECORD_BYTES = 16_384


class ScriptedTls:
    """A scripted SSLSocket: ``arriving`` and ``leaving`` hold the results of its calls."""

    def __init__(self) -> None:
        self.arriving: deque[bytes | Exception] = deque()
        self.leaving: deque[Exception] = deque()
        self.sent = bytearray()
        self.receives = 0

    def recv_into(self, buffer: memoryview) -> int:
        self.receives += 1
        if not self.arriving:
            raise ssl.SSLWantReadError
        head = self.arriving.popleft()
        if isinstance(head, Exception):
            raise head
        count = min(len(buffer), len(head), TLS_RECORD_BYTES)
        buffer[:count] = head[:count]
        if count < len(head):
            self.arriving.appendleft(head[count:])
        return count

    def send(self, data: memoryview) -> int:
        if self.leaving:
            raise self.leaving.popleft()
        count = min(len(data), TLS_RECORD_BYTES)
        self.sent += data[:count]
        return count

    def close(self) -> None:
        pass


class Watched:
    """A selector that notes what a link waits for."""

    def __init__(self) -> None:
        self.events = 0

    def register(self, _: Any, events: int, __: Any) -> None:
        self.events = events

    modify = register


class World(SimpleNamespace):
    tls: ScriptedTls
    selector: Watched
    link: TlsLink
    connection: Connection


def world(*, negotiate: bool = True, **settings: str) -> World:
    """A link over scripted TLS, ready for requests."""
    config = ClientSettings({"security.protocol": "SSL", **settings}).security
    assert config is not None
    connection = Connection("b:1", client_id="t", request_timeout_ms=1, max_response_bytes=1 << 28)
    tls, selector = ScriptedTls(), Watched()
    link = TlsLink(Address("b", 1), connection, tls, selector, config.tls)
    connection.connected(0)
    link.send_pending()
    if negotiate:
        row = ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=8)
        tls.arriving.append(encode_response(0, ApiVersionsResponse(api_keys=[row]), 4))
        link.receive_available()
        assert connection.state is ClientConnectionState.READY
        tls.sent.clear()
    return World(tls=tls, selector=selector, link=link, connection=connection)


def test_bytes_that_openssl_holds_are_all_received() -> None:
    w = world()
    call = w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    w.link.send_pending()
    name = "c" * 32_000
    w.tls.arriving.append(encode_response(1, MetadataResponse(cluster_id=name), 8))
    w.link.receive_available()
    assert call.result().cluster_id == name
    assert w.selector.events == READ


def test_tls_records_are_handed_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    w = world()
    counts: list[int] = []
    true_received = w.connection.received

    def received(count: int) -> None:
        counts.append(count)
        true_received(count)

    monkeypatch.setattr(w.connection, "received", received)
    w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    size = 4_000_000
    w.tls.arriving.append(size.to_bytes(4, "big") + bytes(size - 1))
    before = w.tls.receives
    w.link.receive_available()
    assert sum(counts) == size + 3
    # One call of OpenSSL for each of its records, and a few of the connection for all of them.
    assert w.tls.receives - before <= size // TLS_RECORD_BYTES + 10
    assert len(counts) < 10


def test_a_long_request_goes_out_record_by_record() -> None:
    w = world()
    topics = [MetadataRequestTopic(name="t" * 249) for _ in range(400)]
    w.connection.send(MetadataRequest(topics=topics), MetadataResponse, 8, 0)
    w.tls.leaving.append(ssl.SSLWantWriteError())
    w.link.send_pending()
    assert w.selector.events == BOTH
    w.link.send_pending()
    assert len(w.tls.sent) > 400 * 249
    assert w.selector.events == READ


def test_sending_that_waits_for_bytes_goes_on_when_some_came() -> None:
    w = world()
    w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    w.tls.leaving.append(ssl.SSLWantReadError())
    w.link.send_pending()
    # To wait for room would be to wait for nothing, in a loop that never rests.
    assert w.selector.events == READ
    assert not w.tls.sent
    w.link.receive_available()
    assert w.tls.sent
    assert w.connection.to_send() is None


def test_receiving_that_waits_for_buffer_space_goes_on_when_there_is_some() -> None:
    w = world()
    call = w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    w.link.send_pending()
    w.tls.arriving += [ssl.SSLWantWriteError(), encode_response(1, MetadataResponse(), 8)]
    w.link.receive_available()
    assert w.selector.events == BOTH
    assert not call.is_done
    w.link.send_pending()
    assert call.is_done
    assert w.selector.events == READ


def test_bytes_before_an_error_are_taken() -> None:
    w = world()
    call = w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    reset = ConnectionResetError(104, "Connection reset by peer")
    # OpenSSL tells the same error at every call.
    w.tls.arriving += [encode_response(1, MetadataResponse(), 8), reset, reset]
    w.link.receive_available()
    assert call.result() == MetadataResponse()
    assert str(w.connection.error) == "connection to b:1 was lost: Connection reset by peer"
    assert isinstance(w.connection.error, ConnectionFailed)


def test_the_end_of_the_other_side() -> None:
    w = world()
    w.tls.arriving.append(b"")
    w.link.receive_available()
    assert str(w.connection.error) == "b:1 closed the connection"


def _alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] alert")
    error.reason = reason
    return error


@pytest.mark.parametrize("negotiate", [True, False])
def test_a_wish_for_a_certificate_is_no_lost_connection(negotiate: bool) -> None:
    w = world(negotiate=negotiate)
    w.tls.arriving.append(_alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"))
    w.link.receive_available()
    assert str(w.connection.error) == (
        "b:1 asks for a certificate of this client: set ssl.keystore.location, or ssl.keystore.key "
        "and ssl.keystore.certificate.chain (TLSV13_ALERT_CERTIFICATE_REQUIRED)"
    )
    assert isinstance(w.connection.error, TlsFailed)


def test_tls_that_breaks_after_it_has_worked_may_be_tried_again() -> None:
    # Bytes were lost or changed on their way, or the other side's process is ending.
    for negotiate, kind in ((True, ConnectionFailed), (False, TlsFailed)):
        w = world(negotiate=negotiate)
        w.tls.arriving.append(_alert("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"))
        w.link.receive_available()
        text = "TLS with b:1 failed: DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
        assert str(w.connection.error) == text
        assert type(w.connection.error) is kind


def test_sending_after_the_other_side_has_said_good_bye() -> None:
    w = world()
    w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    w.tls.leaving.append(ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)"))
    w.link.send_pending()
    assert str(w.connection.error).startswith("b:1 closed the connection")
    assert isinstance(w.connection.error, ConnectionFailed)


@pytest.mark.parametrize(
    "how", [b"", ConnectionResetError(104, "reset"), ssl.SSLEOFError(8, "EOF")]
)
def test_a_close_before_anything_was_said_may_mean_a_certificate(how: bytes | Exception) -> None:
    w = world(negotiate=False)
    w.tls.arriving.append(how)
    w.link.receive_available()
    assert str(w.connection.error) == (
        "b:1 closed the connection after TLS's handshake: does it ask for a certificate of this "
        "client (ssl.keystore.location)?"
    )
    assert isinstance(w.connection.error, ConnectionFailed)


def test_a_close_before_anything_was_said_may_mean_another_certificate() -> None:
    w = world(negotiate=False, **{"ssl.keystore.location": "/k.pem"})
    w.tls.arriving.append(ConnectionResetError(104, "reset"))
    w.link.receive_available()
    assert str(w.connection.error) == (
        "b:1 closed the connection after TLS's handshake: does it accept this client's certificate "
        "(ssl.keystore)?"
    )


def test_a_failure_while_sending() -> None:
    w = world()
    w.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    w.tls.leaving.append(BrokenPipeError(32, "Broken pipe"))
    w.link.send_pending()
    assert str(w.connection.error) == "connection to b:1 was lost: Broken pipe"
