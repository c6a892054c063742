"""An evented connection over TLS in memory: few bytes at a time, and the ends of connections."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_klog.client.security.tls import make_context
from pyspark_klog.client.security.tls_stream import TlsStream
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.event_loop import READABLE, LoopStream
from pyspark_klog.client.transport.evented_link import RECEIVE_BYTES
from pyspark_klog.client.transport.preparation import Prepared
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from pyspark_klog.protocol.headers import decode_request, encode_response
from tests.support.client.evented_world import (
    ADDRESS,
    Asked,
    EventedWorld,
    KeptStream,
    reply_bytes,
)
from tests.support.security.certs import Authority
from tests.support.security.server import server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class TlsBroker:
    """The broker's end of TLS on a stream in memory."""

    def __init__(self, stream: KeptStream, context: ssl.SSLContext) -> None:
        self.stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._taken = 0
        self._plain = bytearray()
        self.is_established = False

    def take(self) -> None:
        """Take what the client has sent, and answer what TLS asks for.

        :raises ssl.SSLError: if TLS fails
        """
        self._incoming.write(bytes(self.stream.sent[self._taken :]))
        self._taken = len(self.stream.sent)
        try:
            if not self.is_established:
                self.tls.do_handshake()
                self.is_established = True
            while True:
                self._plain += self.tls.read(1 << 16)
        except ssl.SSLWantReadError:
            pass
        finally:
            self.give()

    def give(self) -> None:
        self.stream.inbox += self._outgoing.read()

    def requests(self) -> list[Asked]:
        """The requests that have come whole since the last call."""
        self.take()
        found = []
        while len(self._plain) >= 4:
            end = 4 + int.from_bytes(self._plain[:4], "big")
            if len(self._plain) < end:
                break
            header, message = decode_request(bytes(self._plain[4:end]))
            found.append(Asked(header.correlation_id, header.api_version, message))
            del self._plain[:end]
        return found

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.give()


class TlsWorld(EventedWorld):
    """One connection over TLS; the test plays the broker."""

    def __init__(self, authority: Authority, hosts: tuple[str, ...] = (ADDRESS.host,)) -> None:
        given = {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(authority.pem_file()),
        }
        security = ClientSettings(given).security
        assert security is not None and security.tls is not None
        config, context = security.tls, make_context(security.tls)

        def prepare(address: Address, done: Callable[[Prepared | KlogError], None]) -> None:
            def secure(stream: LoopStream) -> TlsStream:
                return TlsStream(stream, context, address, config)

            self.loop.call_soon(lambda: done(Prepared(address.host, None, secure)))

        super().__init__(prepare=prepare)
        shown = authority.issue("-".join(hosts), ("broker",), hosts).pem_file()
        self._server = server_context(shown)

    def begin(self, name: str = "first", timeout_ms: int = 60_000) -> TlsBroker:
        """Ask for a topic's metadata; return the broker before it has taken a byte."""
        self.request_metadata(name, timeout_ms)
        self.turns()
        return TlsBroker(self.network.opened[-1], self._server)

    def serve(self, broker: TlsBroker, count: int, turns: int = 1) -> None:
        """Answer the next ``count`` requests."""
        for _ in range(1_000):
            for asked in broker.requests():
                broker.send(reply_bytes(asked))
                count -= 1
            if count <= 0:
                break
            self.turns(turns)
        assert count == 0
        self.turns()


def test_a_connection_is_made_over_tls(authority: Authority) -> None:
    world = TlsWorld(authority)
    world.serve(world.begin(), 2)
    assert world.taken() == [("first", "first")]


def test_a_stream_that_accepts_few_bytes_at_a_time(authority: Authority) -> None:
    """The rest of a TLS message is sent when the stream has room again, whatever is behind it."""
    world = TlsWorld(authority)
    broker = world.begin()
    world.serve(broker, 2)
    topics = [MetadataRequestTopic(name="t" * 30_000) for _ in range(10)]
    sent = MetadataRequest(topics=topics)
    broker.stream.room_bytes = 1_000
    world.connection.send(
        MetadataResponse,
        lambda _: sent,
        lambda response, error: world.note("large", response, error),
        60_000,
    )
    asked: list[Asked] = []
    for _ in range(1_000):
        world.turns(1)
        broker.stream.room_bytes = 1_000
        asked = broker.requests()
        if asked:
            break
    assert [each.message == sent for each in asked] == [True]
    broker.stream.room_bytes = 1 << 30
    answer = MetadataResponse(cluster_id="done")
    broker.send(encode_response(asked[0].correlation_id, answer, asked[0].version))
    world.turns()
    assert world.taken() == [("first", "first"), ("large", "done")]


@pytest.mark.parametrize("more", [-2_000, -1_000, 0, 100_000, 200_000])
def test_bytes_that_openssl_still_holds_are_received(authority: Authority, more: int) -> None:
    """The descriptor is not readable for the bytes that were received, but not decrypted, when the
    connection's share of a turn was used up."""
    world = TlsWorld(authority)
    broker = world.begin()
    world.serve(broker, 2)
    world.request_metadata("large", 60_000)
    world.turns()
    [asked] = broker.requests()
    # Lengths that add up to the connection's share of a turn, and `more` bytes.
    rest = RECEIVE_BYTES + more
    hosts = []
    while rest > 0:
        hosts.append("h" * min(rest, 30_000))
        rest -= 30_000
    brokers = [MetadataResponseBroker(node_id=n, host=host) for n, host in enumerate(hosts)]
    answer = MetadataResponse(cluster_id="large", brokers=brokers)
    broker.send(encode_response(asked.correlation_id, answer, asked.version))
    world.turns(40)
    assert world.taken() == [("first", "first"), ("large", "large")]


def test_one_byte_at_a_time_from_the_broker(authority: Authority) -> None:
    world = TlsWorld(authority)
    broker = world.begin()
    while not broker.is_established:
        broker.take()
        data = bytes(broker.stream.inbox)
        broker.stream.inbox.clear()
        for byte in data:
            broker.stream.inbox.append(byte)
            world.turns(2)
    world.serve(broker, 2)
    assert world.taken() == [("first", "first")]


def test_the_broker_learns_why_its_certificate_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    world = TlsWorld(authority, ("10.0.0.8",))
    broker = world.begin()
    broker.take()
    world.turns()
    assert "the certificate of 10.0.0.7:9092 is not for '10.0.0.7'" in world.error()
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        broker.take()


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_broker_that_closes_after_the_handshake_may_want_a_certificate(
    authority: Authority, is_reset: bool
) -> None:
    world = TlsWorld(authority)
    broker = world.begin()
    broker.take()
    world.turns()
    broker.take()
    assert broker.is_established
    broker.stream.is_at_end = True
    broker.stream.is_broken = is_reset
    world.turns()
    assert world.error() == (
        "10.0.0.7:9092 closed the connection after TLS's handshake: does it ask for a certificate "
        "of this client (ssl.keystore.location)?"
    )


def test_a_broker_that_closes_during_the_handshake(authority: Authority) -> None:
    world = TlsWorld(authority)
    world.begin().stream.is_at_end = True
    world.turns()
    assert "closed the connection during TLS's handshake: has that listener TLS?" in world.error()


def test_a_peer_without_tls(authority: Authority) -> None:
    world = TlsWorld(authority)
    world.begin().stream.inbox += b"HTTP/1.1 400 Bad Request\r\n\r\n"
    world.turns()
    assert "10.0.0.7:9092 does not speak TLS" in world.error()


def test_a_connection_that_ends_later_is_lost_as_one_without_tls(authority: Authority) -> None:
    world = TlsWorld(authority)
    broker = world.begin()
    world.serve(broker, 2)
    world.request_metadata("second", 60_000)
    world.turns()
    broker.stream.is_at_end = True
    world.turns()
    assert world.error() == "10.0.0.7:9092 closed the connection"


def test_damaged_bytes_end_the_connection(authority: Authority) -> None:
    world = TlsWorld(authority)
    broker = world.begin()
    world.serve(broker, 2)
    world.request_metadata("second", 60_000)
    world.turns()
    broker.stream.inbox += b"\x17\x03\x03\x00\x20" + bytes(32)
    world.turns()
    assert world.error().startswith("TLS with 10.0.0.7:9092 failed: ")
    assert world.taken()[-1] == ("second", "ConnectionFailed")


def test_nothing_waits_for_room_during_the_handshake(authority: Authority) -> None:
    """A loop that waits for room would run without a pause until the broker answers."""
    world = TlsWorld(authority)
    broker = world.begin()
    world.turns()
    assert world.network.poller.interest[broker.stream.fileno()] == READABLE
