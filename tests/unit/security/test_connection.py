"""Authentication within a connection: its steps, its refusals, and again before a session ends."""

from typing import Any

import pytest

from pyspark_klog.client.errors import (
    AuthenticationFailed,
    ReplyUnreadable,
    RequestTimedOut,
    UnsupportedByBroker,
)
from pyspark_klog.client.transport.connection import (
    MAX_STRANGERS_RESPONSE_BYTES,
    ClientConnectionState,
    Connection,
)
from pyspark_klog.client.transport.sasl_exchange import Mechanism
from pyspark_klog.errors import BrokerError
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from pyspark_klog.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from pyspark_klog.protocol.apis.sasl_handshake import SaslHandshakeResponse
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response
from pyspark_klog.security.oauthbearer import OAuthBearer, Token
from pyspark_klog.security.sasl_plain import Plain
from pyspark_klog.security.secret import Secret

RANGES = ((ApiKey.METADATA, 0, 8), (ApiKey.SASL_HANDSHAKE, 0, 1), (ApiKey.SASL_AUTHENTICATE, 0, 2))


def _plain() -> Plain:
    return Plain("alice", Secret("HIDDEN"))


class Peer:
    """The other side of a connection, by hand."""

    def __init__(
        self,
        mechanism: Mechanism | None = None,
        ranges: tuple[tuple[ApiKey, int, int], ...] = RANGES,
        now_ms: int = 0,
    ) -> None:
        self.connection = Connection(
            "broker:9093",
            client_id="test",
            request_timeout_ms=1_000,
            max_response_bytes=1 << 28,
            mechanism=mechanism,
        )
        self.connection.connected(now_ms)
        self._headers: list[tuple[int, int]] = []
        self.requests()
        keys = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in ranges]
        self.answer(ApiVersionsResponse(api_keys=keys))

    def requests(self) -> list[Any]:
        """Return the requests that the connection has sent since the last call."""
        data = bytearray()
        while (part := self.connection.to_send()) is not None:
            data += part
            self.connection.sent(len(part))
        found: list[Any] = []
        while data:
            size = int.from_bytes(data[:4], "big")
            header, message = decode_request(bytes(data[4 : 4 + size]))
            self._headers.append((header.correlation_id, header.api_version))
            found.append(message)
            del data[: 4 + size]
        return found

    def answer(self, reply: Response) -> None:
        """Respond to the oldest request."""
        correlation_id, version = self._headers.pop(0)
        self.feed(encode_response(correlation_id, reply, version))

    def feed(self, data: bytes) -> None:
        """Bytes from the broker."""
        with self.connection.receive_buffer() as buffer:
            buffer[: len(data)] = data
        self.connection.received(len(data))

    def accept(self, lifetime_ms: int = 0) -> None:
        """Take an authentication by PLAIN to its good end."""
        [handshake] = self.requests()
        assert handshake.mechanism == "PLAIN"
        self.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]))
        [authenticate] = self.requests()
        assert bytes(authenticate.auth_bytes) == b"\0alice\0HIDDEN"
        self.answer(SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
        assert self.connection.state is ClientConnectionState.READY

    def error(self) -> str:
        """Why the connection ended."""
        assert self.connection.state is ClientConnectionState.CLOSED
        text = str(self.connection.error)
        assert "HIDDEN" not in text
        return text


def test_a_connection_is_ready_once_the_broker_has_accepted() -> None:
    peer = Peer(_plain())
    assert peer.connection.state is ClientConnectionState.AUTHENTICATING
    with pytest.raises(RuntimeError, match="is authenticating, not ready"):
        peer.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    peer.accept()
    assert not peer.connection.authentication_due(1 << 60)
    peer.connection.send(MetadataRequest(), MetadataResponse, 8, 0)


def test_a_mechanism_that_the_broker_lacks() -> None:
    peer = Peer(_plain())
    peer.requests()
    peer.answer(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512", "GSSAPI"]))
    assert peer.error() == (
        "broker:9093 does not have SASL mechanism PLAIN; it has GSSAPI, SCRAM-SHA-512: set "
        "sasl.mechanism to one of these, or enable it in the broker's listener"
    )
    assert isinstance(peer.connection.error, AuthenticationFailed)
    assert not peer.connection.error.retriable


def test_a_listener_without_sasl() -> None:
    peer = Peer(_plain())
    peer.requests()
    peer.answer(SaslHandshakeResponse(error_code=34))
    assert peer.error() == (
        "broker:9093 is a listener without SASL: set security.protocol to PLAINTEXT (SSL if it has "
        "TLS), or use the port of a listener with SASL"
    )


def test_another_error_of_the_handshake_is_the_broker_s() -> None:
    peer = Peer(_plain())
    peer.requests()
    peer.answer(SaslHandshakeResponse(error_code=7))
    assert "SASL handshake with broker:9093: " in peer.error()
    assert isinstance(peer.connection.error, BrokerError)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("Authentication failed: Invalid username", "Authentication failed: Invalid username"),
        (None, "the broker did not accept the credentials"),
        ("no user with HIDDEN\nhere", "no user with *** here"),
        ("x" * 500, "x" * 300),
    ],
)
def test_a_refusal_is_reported_without_the_password(given: str | None, told: str) -> None:
    peer = Peer(_plain())
    peer.requests()
    peer.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse(error_code=58, error_message=given))
    text = peer.error()
    assert text.startswith("broker:9093 refused SASL PLAIN for user 'alice': ")
    assert text.endswith("; check user and password in sasl.jaas.config")
    if given is not None:
        assert f": {told};" in text
    assert isinstance(peer.connection.error, AuthenticationFailed)


def test_a_refusal_is_reported_unchanged_where_the_password_is_empty() -> None:
    assert Plain("alice", Secret("")).explain("no such user") == "no such user"


def test_a_token_that_is_refused_is_answered_and_explained() -> None:
    peer = Peer(OAuthBearer(Token(Secret("HIDDEN"))))
    peer.requests()
    peer.answer(SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    [last] = peer.requests()
    assert bytes(last.auth_bytes) == b"\x01"
    peer.answer(SaslAuthenticateResponse(error_code=58, error_message='{"status":"invalid_tok"}'))
    assert peer.error() == (
        "broker:9093 refused SASL OAUTHBEARER: status invalid_token; check where the token comes "
        "from"
    )


def test_a_token_that_is_refused_and_then_accepted_is_refused() -> None:
    peer = Peer(OAuthBearer(Token(Secret("HIDDEN"))))
    peer.requests()
    peer.answer(SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
    peer.requests()
    peer.answer(SaslAuthenticateResponse())
    assert peer.error() == (
        "SASL OAUTHBEARER with broker:9093 failed: the broker refused the token: "
        "status invalid_token"
    )


def test_a_challenge_out_of_order_ends_it() -> None:
    peer = Peer(_plain())
    peer.requests()
    peer.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse(auth_bytes=b"more"))
    assert peer.error() == (
        "SASL PLAIN with broker:9093 failed: the broker sent a challenge, which PLAIN does not have"
    )


def test_an_error_that_may_pass_is_no_refusal() -> None:
    peer = Peer(_plain())
    peer.requests()
    peer.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse(error_code=14))
    assert isinstance(peer.connection.error, BrokerError)
    assert peer.connection.error.code.retriable


def test_a_broker_before_kafka_1_0() -> None:
    peer = Peer(_plain(), ((ApiKey.METADATA, 0, 4), (ApiKey.SASL_HANDSHAKE, 0, 0)))
    assert "has versions 0 to 0 of SASL_HANDSHAKE; klog needs one of 1 to 1" in peer.error()
    assert isinstance(peer.connection.error, UnsupportedByBroker)


def test_a_broker_without_sasl() -> None:
    peer = Peer(_plain(), ((ApiKey.METADATA, 0, 4),))
    assert peer.error() == (
        "broker:9093 is a broker without SASL: set security.protocol to PLAINTEXT, or to SSL if "
        "its listener has TLS"
    )


def test_a_broker_that_closes_or_is_silent_while_authenticating() -> None:
    peer = Peer(_plain())
    peer.connection.received(0)
    assert peer.error() == "broker:9093 closed the connection while authenticating"
    peer = Peer(_plain())
    assert peer.connection.next_deadline_ms() == 1_000
    peer.connection.on_deadline(1_000)
    assert isinstance(peer.connection.error, RequestTimedOut)
    assert peer.error() == "broker:9093 did not answer SASL_HANDSHAKE in time"


# --- strangers -----------------------------------------------------------------------------------
def test_a_stranger_s_reply_is_small() -> None:
    peer = Peer(_plain())
    peer.feed((MAX_STRANGERS_RESPONSE_BYTES + 1).to_bytes(4, "big"))
    assert "broker:9093: a reply says that it has 1048577 bytes; expected 4 to" in peer.error()
    peer = Peer(_plain())
    peer.accept()
    peer.feed((MAX_STRANGERS_RESPONSE_BYTES + 1).to_bytes(4, "big"))
    assert peer.connection.state is ClientConnectionState.READY


def test_a_stranger_s_words_are_bounded_and_of_one_line() -> None:
    peer = Peer(_plain())
    peer.requests()
    names = [f"M{'x' * 50}\n\x1b[2J{number}" for number in range(1_000)]
    peer.answer(SaslHandshakeResponse(error_code=33, mechanisms=names))
    text = peer.error()
    assert len(text) < 500
    assert text.isprintable()


# --- again (KIP-368) -----------------------------------------------------------------------------
def test_a_session_is_renewed_before_its_end() -> None:
    peer = Peer(_plain(), now_ms=5_000)
    peer.accept(lifetime_ms=10_000)
    connection = peer.connection
    assert not connection.authentication_due(13_499)
    assert connection.authentication_due(13_500)
    connection.authenticate(_plain(), 13_500)
    assert connection.state is ClientConnectionState.AUTHENTICATING
    assert not connection.authentication_due(1 << 60)
    peer.accept(lifetime_ms=20_000)
    assert not connection.authentication_due(30_499)
    assert connection.authentication_due(30_500)


def test_replies_under_way_come_before_the_new_session() -> None:
    peer = Peer(_plain())
    peer.accept(lifetime_ms=1_000)
    call = peer.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    peer.connection.authenticate(_plain(), 900)
    request, handshake = peer.requests()
    assert isinstance(request, MetadataRequest)
    peer.answer(MetadataResponse(cluster_id="c"))
    assert call.result().cluster_id == "c"
    assert peer.connection.state is ClientConnectionState.AUTHENTICATING
    peer.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse())
    assert peer.connection.state is ClientConnectionState.READY
    assert handshake.mechanism == "PLAIN"


def test_a_refusal_of_a_new_session_ends_what_waits() -> None:
    peer = Peer(_plain())
    peer.accept(lifetime_ms=1_000)
    peer.connection.authenticate(_plain(), 900)
    peer.requests()
    peer.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    peer.requests()
    peer.answer(SaslAuthenticateResponse(error_code=58, error_message="gone"))
    assert "refused SASL PLAIN for user 'alice': gone" in peer.error()


# --- the wrong protocol --------------------------------------------------------------------------
def test_an_alert_of_tls_where_a_reply_should_be() -> None:
    connection = Connection(
        "broker:9093", client_id="t", request_timeout_ms=1_000, max_response_bytes=1 << 30
    )
    connection.connected(0)
    with connection.receive_buffer() as buffer:
        buffer[:7] = b"\x15\x03\x03\x00\x02\x02\x50"
    connection.received(7)
    assert isinstance(connection.error, ReplyUnreadable)
    assert str(connection.error) == (
        "broker:9093: the broker sent a TLS alert instead of a reply: set security.protocol to "
        "SSL (or SASL_SSL), or use the port of a listener without TLS"
    )


def test_a_listener_with_sasl_closes_at_the_first_request() -> None:
    peer = Peer()
    peer.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    peer.connection.received(0)
    assert peer.error() == (
        "broker:9093 closed the connection at the first request, METADATA: has this listener SASL, "
        "or has the broker just started?"
    )


def test_a_connection_that_was_of_use_is_only_lost() -> None:
    peer = Peer()
    for _ in range(2):
        peer.connection.send(MetadataRequest(), MetadataResponse, 8, 0)
    peer.requests()
    peer.answer(MetadataResponse())
    peer.connection.received(0)
    assert peer.error() == "broker:9093 closed the connection"
    idle = Peer()
    idle.connection.received(0)
    assert idle.error() == "broker:9093 closed the connection"
