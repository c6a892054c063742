"""Handshakes between Apache Kafka's own client and broker, and stores made by Java's keytool.

klog's client, given the broker's recorded frames, must send the authentication bytes of Kafka's
client. `python -m tests.support.golden.security` records them again.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.client.errors import AuthenticationFailed, SettingError
from pyspark_klog.client.security.stores import own_key, trusted_certificates
from pyspark_klog.client.security.tls import make_context
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection
from pyspark_klog.client.transport.sasl_exchange import Mechanism
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.headers import decode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.security.oauthbearer import OAuthBearer, Token
from pyspark_klog.security.sasl_config import PasswordLogin, UnsecuredTokens
from pyspark_klog.security.sasl_plain import Plain
from pyspark_klog.security.scram import Scram
from pyspark_klog.security.secret import Secret

FOLDER = Path(__file__).parent / "security"
STORE_PASSWORD = "store-passw0rd"
RELEASES = ("3.9.1", "4.3.1")


class Transcript:
    """The frames of one recorded handshake."""

    def __init__(self, release: str, name: str) -> None:
        path = FOLDER / f"kafka-{release}-{name}.json"
        content: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
        self.mechanism: str = content["mechanism"]
        self.jaas: str = content["jaas"]
        frames = [bytes.fromhex(data) for _, _, data in content["frames"]]
        self.requests, self.replies = frames[::2], frames[1::2]
        self.messages: list[Any] = [decode_request(frame) for frame in self.requests]

    def first_message(self) -> bytes:
        """Return the first message of the mechanism that Kafka's client sent."""
        return bytes(self.messages[1][1].auth_bytes) if len(self.messages) > 1 else b""

    def like(self) -> Mechanism:
        """klog's mechanism of the same login module, with the recorded nonce or token."""
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": self.mechanism}
        security = ClientSettings({**settings, "sasl.jaas.config": self.jaas}).security
        assert security is not None
        assert security.sasl is not None
        login, first = security.sasl.login, self.first_message().decode()
        if isinstance(login, UnsecuredTokens):
            # Its times are Java's own: only the exchange around the token is compared.
            return OAuthBearer(Token(Secret(first.split("Bearer ")[1].split("\x01")[0])))
        assert isinstance(login, PasswordLogin)
        if self.mechanism == "PLAIN":
            return Plain(login.username, login.password)
        nonce = first.partition(",r=")[2] or "nonce"
        return Scram(self.mechanism, login.username, login.password, nonce)

    def replay(self) -> Connection:
        """klog's connection after all recorded replies; compares every request of SASL."""
        connection = Connection(
            "golden:9092",
            client_id="klog",
            request_timeout_ms=1_000,
            max_response_bytes=1 << 20,
            mechanism=self.like(),
        )
        connection.connected(0)
        version = {header.api_key: header.api_version for header, _ in self.messages}
        ranges = [
            ApiVersion(api_key=key, min_version=0, max_version=version.get(key, 1))
            for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        ]
        [(header, _)] = _sent(connection)
        reply = ApiVersionsResponse(api_keys=ranges)
        _feed(connection, encode_response(header.correlation_id, reply, header.api_version))
        for (expected, message), answer in zip(self.messages, self.replies, strict=True):
            [(header, sent)] = _sent(connection)
            assert (header.api_key, header.api_version) == (expected.api_key, expected.api_version)
            assert sent == message
            ours = header.correlation_id.to_bytes(4, "big")
            _feed(connection, len(answer).to_bytes(4, "big") + ours + answer[4:])
        assert connection.to_send() is None
        return connection


def _sent(connection: Connection) -> list[Any]:
    data = bytearray()
    while (part := connection.to_send()) is not None:
        data += part
        connection.sent(len(part))
    size = int.from_bytes(data[:4], "big")
    assert len(data) == 4 + size
    return [decode_request(bytes(data[4:]))]


def _feed(connection: Connection, data: bytes) -> None:
    with connection.receive_buffer() as buffer:
        buffer[: len(data)] = data
    connection.received(len(data))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["plain", "scram-sha-256", "scram-sha-512", "oauthbearer"])
def test_a_recorded_handshake_is_klog_s_own(release: str, name: str) -> None:
    connection = Transcript(release, name).replay()
    assert connection.state is ClientConnectionState.READY
    # Brokers end sessions of PLAIN after a minute here, and those of tokens with them.
    assert connection.authentication_due(1 << 60) is (name in ("plain", "oauthbearer"))
    if name == "plain":
        assert not connection.authentication_due(50_999)
        assert connection.authentication_due(51_000)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "plain-refused",
            "golden:9092 refused SASL PLAIN for user 'alice': Authentication failed: Invalid "
            "username or password; check user and password in sasl.jaas.config",
        ),
        (
            "scram-sha-256-refused",
            "golden:9092 refused SASL SCRAM-SHA-256 for user 'alice': Authentication failed during "
            "authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256; check "
            "user and password in sasl.jaas.config",
        ),
        (
            "oauthbearer-refused",
            "golden:9092 refused SASL OAUTHBEARER: status insufficient_scope, scope [write]; check "
            "where the token comes from",
        ),
        (
            "unknown-mechanism",
            "golden:9092 does not have SASL mechanism SCRAM-SHA-256; it has PLAIN: set "
            "sasl.mechanism to one of these, or enable it in the broker's listener",
        ),
    ],
)
def test_a_recorded_refusal_is_explained(release: str, name: str, text: str) -> None:
    connection = Transcript(release, name).replay()
    assert connection.state is ClientConnectionState.CLOSED
    assert isinstance(connection.error, AuthenticationFailed)
    assert str(connection.error) == text


# --- stores --------------------------------------------------------------------------------------
def _tls(name: str, file: str):
    given = {f"ssl.{name}.location": str(FOLDER / file), f"ssl.{name}.password": STORE_PASSWORD}
    security = ClientSettings({"security.protocol": "SSL", **given}).security
    assert security is not None
    return security.tls


def test_a_truststore_by_keytool() -> None:
    tls = _tls("truststore", "truststore.p12")
    expected = "".join((FOLDER / "golden.pem").read_text().split())
    assert "".join(trusted_certificates(tls.trust).split()) == expected
    assert make_context(tls).cert_store_stats()["x509"] == 1


def test_a_keystore_by_keytool() -> None:
    tls = _tls("keystore", "keystore.p12")
    expected = "".join((FOLDER / "golden.pem").read_text().split())
    assert expected in "".join(own_key(tls.own).pem.reveal().split())
    make_context(tls)


def test_a_jks_store_by_keytool_is_refused() -> None:
    with pytest.raises(SettingError, match="is a JKS store, which only Java reads; convert it"):
        make_context(_tls("truststore", "truststore.jks"))
