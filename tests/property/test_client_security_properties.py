"""A foreign peer may send any bytes: a login ends or fails in one line. Texts are read exactly."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.client.errors import AuthenticationFailed, SettingError, one_line
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection
from pyspark_klog.client.transport.sasl_exchange import Mechanism
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from pyspark_klog.protocol.apis.sasl_handshake import SaslHandshakeResponse
from pyspark_klog.protocol.headers import encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.security.jaas import read_jaas
from pyspark_klog.security.oauthbearer import OAuthBearer, Token, check_token, expiry_of
from pyspark_klog.security.pem import pem_blocks
from pyspark_klog.security.sasl_plain import Plain
from pyspark_klog.security.scram import Scram
from pyspark_klog.security.secret import Secret

NONCE = "rOprNGfwEbeRWgbNEkqO"
_JSON = b'{"status":"x"}', b"[" * 5_000, b'{"status":"' + b"\\u001b[2J" * 200 + b'"}'
_ATTRIBUTES = st.lists(
    st.tuples(
        st.sampled_from("rsimvex"),
        st.one_of(
            st.sampled_from([NONCE, NONCE + "x", "4096", "4097", "9" * 5_000, "AAAA", "", "="]),
            st.text(max_size=20),
            st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
        ),
    ),
    max_size=5,
).map(lambda pairs: ",".join(f"{name}={value}" for name, value in pairs).encode())
CHALLENGES = st.one_of(st.just(b""), st.binary(max_size=100), _ATTRIBUTES, st.sampled_from(_JSON))


def _mechanism(kind: str) -> Mechanism:
    if kind == "PLAIN":
        return Plain("alice", Secret("HIDDEN"))
    if kind == "OAUTHBEARER":
        return OAuthBearer(Token(Secret("HIDDEN")))
    return Scram(kind, "alice", Secret("HIDDEN"), NONCE)


KINDS = st.sampled_from(["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"])


@given(KINDS, st.lists(CHALLENGES, max_size=4))
def test_challenges_are_answered_or_refused(kind: str, challenges: list[bytes]) -> None:
    mechanism = _mechanism(kind)
    mechanism.initial()
    for challenge in challenges:
        try:
            answer = mechanism.respond(challenge)
        except AuthenticationFailed as error:
            assert "HIDDEN" not in str(error)
            assert str(error).isprintable()
            return
        if answer is None:
            # Only the one that knows the password can end SCRAM well, and no stranger does.
            assert kind in ("PLAIN", "OAUTHBEARER")
            return


_ERRORS = st.sampled_from([0, 0, 0, 33, 34, 58, 7, -1, 1_000])
_REPLIES = st.one_of(
    st.builds(
        SaslHandshakeResponse,
        error_code=_ERRORS,
        mechanisms=st.lists(st.text(max_size=20), max_size=3),
    ),
    st.builds(
        SaslAuthenticateResponse,
        error_code=_ERRORS,
        error_message=st.one_of(st.none(), st.text(max_size=400)),
        auth_bytes=CHALLENGES,
        session_lifetime_ms=st.integers(-(2**63), 2**63 - 1),
    ),
    st.binary(min_size=4, max_size=60),
)
_VERSIONS = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}


@given(KINDS, st.lists(_REPLIES, max_size=4))
def test_a_connection_survives_a_stranger(kind: str, replies: list[object]) -> None:
    connection = Connection(
        "b:1",
        client_id="t",
        request_timeout_ms=1_000,
        max_response_bytes=1 << 28,
        mechanism=_mechanism(kind),
    )
    connection.connected(0)
    rows = [ApiVersion(api_key=k, min_version=0, max_version=v) for k, v in _VERSIONS.items()]
    first: list[object] = [ApiVersionsResponse(api_keys=rows)]
    for number, reply in enumerate(first + replies):
        if connection.state in (ClientConnectionState.CLOSED, ClientConnectionState.READY):
            break
        if isinstance(reply, bytes):
            frame = len(reply).to_bytes(4, "big") + reply
        elif isinstance(reply, SaslHandshakeResponse):
            frame = encode_response(number, reply, 1)
        elif isinstance(reply, SaslAuthenticateResponse):
            frame = encode_response(number, reply, 2)
        else:
            assert isinstance(reply, ApiVersionsResponse)
            frame = encode_response(number, reply, 4)
        with connection.receive_buffer() as buffer:
            buffer[: len(frame)] = frame
        connection.received(len(frame))
    if connection.state is ClientConnectionState.CLOSED:
        assert isinstance(connection.error, KlogError)
        assert "HIDDEN" not in str(connection.error)
        assert str(connection.error).isprintable()
    elif connection.state is ClientConnectionState.READY:
        assert kind in ("PLAIN", "OAUTHBEARER")
        connection.authentication_due(1 << 62)


_PIECES = st.sampled_from(
    ["a.B", "required", "username", "=", ";", '"', "'", "HIDDEN", "\\", "/*", "*/", "//", "\n", " "]
)


@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=14).map(" ".join)))
def test_a_login_module_is_read_or_refused(text: str) -> None:
    try:
        module = read_jaas(Secret(text))
    except SettingError as error:
        assert "HIDDEN" not in str(error)
    else:
        assert all(isinstance(value, Secret) for value in module.options.values())
        assert "HIDDEN" not in repr(module) or "HIDDEN" in (module.class_name, *module.options)


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=30))
def test_a_password_in_quotes_is_what_it_was(password: str) -> None:
    if "\n" in password or "\r" in password:
        return  # Java's quotes end with the line
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    module = read_jaas(Secret(f'a.B required username="u" password="{quoted}";'))
    assert module.options["password"].reveal() == password


@given(st.text(max_size=200), st.integers(1, 50))
def test_words_of_others_are_bounded_and_harmless(text: str, longest: int) -> None:
    shown = one_line(text, longest)
    assert len(shown) <= longest
    assert shown.isprintable()


@given(st.text(max_size=60), st.binary(max_size=40))
def test_tokens_and_stores_of_any_kind(text: str, claims: bytes) -> None:
    body = base64.urlsafe_b64encode(claims).decode()
    expiry_of(Secret(f"a.{body}.c"))
    pem_blocks(text)
    try:
        check_token(text)
    except AuthenticationFailed:
        return
    assert text.isascii()


def test_a_secret_is_not_shown_in_any_form() -> None:
    secret = Secret("HIDDEN")
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>9}", f"{[secret]}"):
        assert "HIDDEN" not in shown
    with pytest.raises(TypeError, match="a secret has no iterator"):
        list(secret)  # type: ignore[call-overload]
