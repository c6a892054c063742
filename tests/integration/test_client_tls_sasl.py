"""The client's authentication against a broker that the tests play, with and without TLS."""

import base64
import contextlib
import http.server
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import AuthenticationFailed, ClientError, TlsFailed
from pyspark_klog.errors import KlogError
from tests.support.eventually import eventually
from tests.support.security.certs import Authority
from tests.support.security.kafka_listeners import (
    MECHANISMS,
    OAUTH_MODULE,
    PASSWORD,
    PLAIN_MODULE,
    SCRAM_MODULE,
    USER,
    jaas,
)
from tests.support.security.server import PlayedBroker, server_context

PASSWORD_MECHANISMS = MECHANISMS[:3]
FROM_ENDPOINT = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("sasl"))


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def broker(request: pytest.FixtureRequest, authority: Authority) -> Iterator[PlayedBroker]:
    tls = server_context(authority.broker().pem_file()) if request.param == "SASL_SSL" else None
    with PlayedBroker(tls=tls, mechanisms=MECHANISMS, users={USER: PASSWORD, "a=b,c": 'ü;"'}) as b:
        yield b


@pytest.fixture
def plain() -> Iterator[PlayedBroker]:
    with PlayedBroker(mechanisms=MECHANISMS, users={USER: PASSWORD}) as broker:
        yield broker


def settings(broker: PlayedBroker, authority: Authority, mechanism: str, config: str = "") -> Any:
    given = {"bootstrap.servers": broker.address, "sasl.mechanism": mechanism}
    if broker.tls is not None:
        given["ssl.truststore.location"] = str(authority.pem_file())
    given["security.protocol"] = "SASL_PLAINTEXT" if broker.tls is None else "SASL_SSL"
    return given | ({"sasl.jaas.config": config} if config else {})


def connect(given: dict[str, str]) -> int:
    """How many brokers there are."""
    with BlockingClient(given) as client:
        return len(client.refresh(None).brokers)


def failure(given: dict[str, str], kind: type[ClientError] = AuthenticationFailed) -> str:
    limits = {"default.api.timeout.ms": "3000", "request.timeout.ms": "3000"}
    with pytest.raises(kind) as caught:
        connect({**given, **limits, "delivery.timeout.ms": "3000"})
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- mechanisms ----------------------------------------------------------------------------------
def _accepted(broker: PlayedBroker, authority: Authority, mechanism: str) -> None:
    before = len(broker.authentications)
    assert connect(settings(broker, authority, mechanism, jaas(mechanism))) == 1
    assert {(m, who) for m, who in broker.authentications[before:]} == {(mechanism, USER)}


@pytest.mark.parity("security: PLAIN", "security: SASL_PLAINTEXT", "security: SASL_SSL")
def test_plain(broker: PlayedBroker, authority: Authority) -> None:
    _accepted(broker, authority, "PLAIN")


@pytest.mark.parity("security: SCRAM-SHA-256", "security: SASL_PLAINTEXT", "security: SASL_SSL")
def test_scram_sha_256(broker: PlayedBroker, authority: Authority) -> None:
    _accepted(broker, authority, "SCRAM-SHA-256")


@pytest.mark.parity("security: SCRAM-SHA-512", "security: SASL_PLAINTEXT", "security: SASL_SSL")
def test_scram_sha_512(broker: PlayedBroker, authority: Authority) -> None:
    _accepted(broker, authority, "SCRAM-SHA-512")


@pytest.mark.parity("security: jaas: OAuthBearerLoginModule")
def test_an_unsecured_token_and_its_extensions(broker: PlayedBroker, authority: Authority) -> None:
    config = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice" '
    config += 'unsecuredLoginExtension_team="data";'
    assert connect(settings(broker, authority, "OAUTHBEARER", config)) == 1
    mechanism, token = broker.authentications[-1]
    assert mechanism == "OAUTHBEARER"
    body = token.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(body + "=="))["sub"] == "alice"
    assert broker.extensions[-1] == {"team": "data"}


@pytest.mark.parity("security: jaas: PlainLoginModule", "security: jaas: kafkashaded prefix")
@pytest.mark.parametrize("module", [PLAIN_MODULE, f"kafkashaded.{PLAIN_MODULE}"])
def test_users_and_passwords_with_every_character(
    broker: PlayedBroker, authority: Authority, module: str
) -> None:
    config = f"""{module} required username='a=b,c' password="ü;\\"";"""
    for mechanism in PASSWORD_MECHANISMS:
        assert connect(settings(broker, authority, mechanism, config)) == 1
        assert broker.authentications[-1] == (mechanism, "a=b,c")


@pytest.mark.parity("security: jaas: ScramLoginModule")
def test_a_scram_login_module_as_databricks_has_it(
    plain: PlayedBroker, authority: Authority
) -> None:
    config = f'kafkashaded.{SCRAM_MODULE} required username="{USER}" password="{PASSWORD}";'
    assert connect(settings(plain, authority, "SCRAM-SHA-512", config)) == 1


# --- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_wrong_password_is_refused_once(
    plain: PlayedBroker, authority: Authority, mechanism: str
) -> None:
    given = settings(plain, authority, mechanism, jaas(mechanism, password="HIDDEN"))
    text = failure(given)
    assert text.startswith(f"{plain.address} refused SASL {mechanism} for user 'alice': Authentic")
    assert text.endswith("; check user and password in sasl.jaas.config")
    assert "HIDDEN" not in text
    assert plain.connections == 1


def test_an_unknown_mechanism_names_those_of_the_broker(authority: Authority) -> None:
    with PlayedBroker(mechanisms=("PLAIN", "GSSAPI")) as broker:
        given = settings(broker, authority, "SCRAM-SHA-256", jaas("SCRAM-SHA-256"))
        assert failure(given) == (
            f"{broker.address} does not have SASL mechanism SCRAM-SHA-256; it has GSSAPI, PLAIN: "
            "set sasl.mechanism to one of these, or enable it in the broker's listener"
        )
        assert broker.connections == 1


def test_a_token_that_is_refused(authority: Authority) -> None:
    with PlayedBroker(mechanisms=("OAUTHBEARER",), token=lambda token: False) as broker:
        given = settings(broker, authority, "OAUTHBEARER", jaas("OAUTHBEARER"))
        assert failure(given) == (
            f"{broker.address} refused SASL OAUTHBEARER: status invalid_token; check where the "
            "token comes from"
        )
        assert broker.connections == 1


def test_sasl_to_a_listener_without_it_and_back(plain: PlayedBroker, authority: Authority) -> None:
    with PlayedBroker() as open_to_all:
        given = settings(open_to_all, authority, "PLAIN", jaas("PLAIN"))
        assert failure(given).startswith(f"{open_to_all.address} is a listener without SASL: set ")
        assert open_to_all.connections == 1
    text = failure({"bootstrap.servers": plain.address}, ClientError)
    assert text.endswith(
        f"{plain.address} closed the connection at the first request, METADATA: has this listener "
        "SASL, or has the broker just started?"
    )


def test_too_few_iterations_are_refused_by_the_client(authority: Authority) -> None:
    users = {USER: PASSWORD}
    with PlayedBroker(mechanisms=MECHANISMS, users=users, iterations=1_000) as broker:
        text = failure(settings(broker, authority, "SCRAM-SHA-256", jaas("SCRAM-SHA-256")))
    assert text == (
        f"SASL SCRAM-SHA-256 with {broker.address} failed: the broker asks for 1000 iterations of "
        "SCRAM; expected 4096 to 1000000: create the user's credentials again"
    )


# --- functions of a user's own -------------------------------------------------------------------
def credentials(options: dict[str, str]) -> object:
    return options.get("user", USER), PASSWORD


def no_credentials(options: dict[str, str]) -> object:
    return USER


def failing(options: dict[str, str]) -> object:
    raise ValueError("HIDDEN")


def msk_token(options: dict[str, str]) -> object:
    """The docs' function for AWS_MSK_IAM: returns (token, its expiry in ms of the epoch)."""
    return f"msk-{options.get('region', 'eu-west-1')}", 4_000_000_000_000


@pytest.mark.parity("security: Java class names")
@pytest.mark.parametrize("setting", ["client", "login"])
def test_user_and_password_from_a_function(
    plain: PlayedBroker, authority: Authority, setting: str
) -> None:
    name = f"sasl.{setting}.callback.handler.class"
    given = settings(plain, authority, "SCRAM-SHA-256")
    assert connect({**given, name: f"{__name__}:credentials"}) == 1
    options = {"sasl.jaas.config": f'{SCRAM_MODULE} required user="bob";'}
    assert "for user 'bob'" in failure({**given, **options, name: f"{__name__}:credentials"})
    text = failure({**given, name: f"{__name__}:no_credentials"}, ClientError)
    assert (
        text == f"{name}: {__name__}:no_credentials gave str; expected (user, password), both text"
    )
    text = failure({**given, name: f"{__name__}:failing"})
    assert text == f"{name}: {__name__}:failing raised ValueError; it must give (user, password)"


@pytest.mark.parity("security: OAUTHBEARER token callback", "security: AWS_MSK_IAM")
def test_a_token_from_a_function(broker: PlayedBroker, authority: Authority) -> None:
    given = settings(broker, authority, "OAUTHBEARER")
    given["sasl.login.callback.handler.class"] = f"{__name__}:msk_token"
    assert connect(given) == 1
    assert broker.authentications[-1] == ("OAUTHBEARER", "msk-eu-west-1")
    given["sasl.jaas.config"] = f'{OAUTH_MODULE} required region="us-east-1";'
    assert connect(given) == 1
    assert broker.authentications[-1] == ("OAUTHBEARER", "msk-us-east-1")


# --- client credentials --------------------------------------------------------------------------
class TokenEndpoint:
    """An OAuth 2 endpoint on loopback. ``answers`` are used one after the other, then `good`."""

    def __init__(self, pem_file: Path | None = None) -> None:
        self.asked: list[dict[str, str]] = []
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                endpoint.asked.append(
                    {"body": self.rfile.read(length).decode(), **dict(self.headers.items())}
                )
                code, body, headers = endpoint.answers.pop(0) if endpoint.answers else GOOD
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if pem_file is not None:
            context, scheme = server_context(pem_file), "https"
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> "TokenEndpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


class SlowEndpoint:
    """An endpoint whose response has a header that never ends."""

    def __init__(self, pem_file: Path | None) -> None:
        self._context = None if pem_file is None else server_context(pem_file)
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if pem_file is None else "https"
        self.url = f"{scheme}://localhost:{self._listener.getsockname()[1]}/token"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, contextlib.suppress(OSError):
                    if self._context is not None:
                        client = self._context.wrap_socket(client, server_side=True)
                    client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                    while not self._is_over.wait(0.05):
                        client.sendall(b"x")

    def __enter__(self) -> "SlowEndpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)


GOOD = (200, b'{"access_token":"t0ken","expires_in":3600,"token_type":"Bearer"}', {})


def _from(
    endpoint: "TokenEndpoint | SlowEndpoint",
    broker: PlayedBroker,
    authority: Authority,
    **more: str,
) -> Any:
    named = {name.replace("__", "."): value for name, value in more.items()}
    config = f'{OAUTH_MODULE} required clientId="job" clientSecret="HIDDEN+/" scope="klog read" '
    config += f'ssl.truststore.location="{authority.pem_file()}";'
    return {
        **settings(broker, authority, "OAUTHBEARER", config),
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.login.callback.handler.class": FROM_ENDPOINT,
        "sasl.login.retry.backoff.ms": "1",
        **named,
    }


@pytest.mark.parity("security: OAUTHBEARER client credentials")
def test_client_credentials_over_https(broker: PlayedBroker, authority: Authority) -> None:
    with TokenEndpoint(authority.broker().pem_file()) as endpoint:
        with BlockingClient(_from(endpoint, broker, authority)) as client:
            assert len(client.refresh(None).brokers) == 1
            broker.cut()
            assert len(client.refresh(None).brokers) == 1
        assert broker.authentications[-2:] == [("OAUTHBEARER", "t0ken")] * 2
        # The second connection was given the token of the first.
        [asked] = endpoint.asked
    assert asked["body"] == "grant_type=client_credentials&scope=klog+read"
    assert asked["Authorization"] == "Basic " + base64.b64encode(b"job:HIDDEN+/").decode()
    assert asked["Content-Type"] == "application/x-www-form-urlencoded"


def test_client_credentials_url_encoded_and_plain_http(
    plain: PlayedBroker, authority: Authority
) -> None:
    with TokenEndpoint() as endpoint:
        urlencode = {"sasl__oauthbearer__header__urlencode": "true"}
        assert connect(_from(endpoint, plain, authority, **urlencode)) == 1
        basic = base64.b64encode(b"job:HIDDEN%2B%2F").decode()
        assert endpoint.asked[0]["Authorization"] == f"Basic {basic}"


@pytest.mark.parametrize("expires_in", ["Infinity", "NaN", "1e300", "-5", '"3600"'])
def test_a_token_whose_end_is_odd(
    plain: PlayedBroker, authority: Authority, expires_in: str
) -> None:
    with TokenEndpoint() as endpoint:
        body = '{"access_token":"t0ken","expires_in":' + expires_in + "}"
        endpoint.answers = [(200, body.encode(), {})]
        assert connect(_from(endpoint, plain, authority)) == 1


@pytest.mark.parametrize("is_secured", [False, True])
def test_an_endpoint_that_answers_byte_by_byte(
    plain: PlayedBroker, authority: Authority, is_secured: bool
) -> None:
    with SlowEndpoint(authority.broker().pem_file() if is_secured else None) as endpoint:
        given = _from(endpoint, plain, authority)
        given |= {"sasl.login.read.timeout.ms": "300", "sasl.login.retry.backoff.max.ms": "1"}
        assert failure(given) == f"token endpoint {endpoint.url} did not answer within 300 ms"


def test_an_endpoint_in_trouble_is_asked_again(plain: PlayedBroker, authority: Authority) -> None:
    with TokenEndpoint() as endpoint:
        endpoint.answers = [(503, b"busy", {}), (500, b"{}", {})]
        assert connect(_from(endpoint, plain, authority)) == 1
        assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (401, b'{"error":"invalid_client","error_description":"no job:HIDDEN+/"}', {}),
            "answered 401 (invalid_client: no job:***); check clientId, clientSecret and scope",
        ),
        ((400, b"<html>", {}), "answered 400; check clientId, clientSecret and scope"),
        (
            (400, b"50\r\ncut off", {"Transfer-Encoding": "chunked"}),
            "answered 400; check clientId, clientSecret and scope",
        ),
        ((302, b"", {"Location": "http://localhost:1/"}), "answered 302; check clientId"),
        ((200, b"[]", {}), "sent no usable token; expected JSON"),
        ((200, b"[" * 200_000, {}), "sent no usable token; expected JSON"),
        ((200, b'{"access_token":"t","expires_in":"soon"}', {}), "sent no usable token"),
        ((200, b'{"access_token":"two words"}', {}), "or has characters that a bearer token"),
    ],
)
def test_an_endpoint_that_gives_no_token(
    plain: PlayedBroker, authority: Authority, answer: Any, words: str
) -> None:
    with TokenEndpoint() as endpoint:
        endpoint.answers = [answer]
        text = failure(_from(endpoint, plain, authority))
        assert words in text
        assert "HIDDEN" not in text
        assert len(endpoint.asked) == 1
        assert plain.connections == 0


def test_an_endpoint_that_is_not_there_or_not_trusted(
    plain: PlayedBroker, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").broker().pem_file()
    with TokenEndpoint(stranger) as endpoint:
        text = failure(_from(endpoint, plain, authority))
        assert text.startswith(f"token endpoint {endpoint.url} gave no complete response: ")
        assert text.endswith("; ssl.truststore.* can be options of sasl.jaas.config")
        gone = _from(endpoint, plain, authority, sasl__login__retry__backoff__max__ms="50")
    assert "gave no complete response: Connection refused" in failure(gone)


@pytest.mark.parametrize("url", ["http://localhost:1/t\u00f6ken", "http://[::1/token"])
def test_an_endpoint_s_address_that_cannot_be(
    plain: PlayedBroker, authority: Authority, url: str
) -> None:
    with TokenEndpoint() as endpoint:
        endpoint.url = url
        assert failure(_from(endpoint, plain, authority)) == (
            f"token endpoint {url} cannot be asked by that address: expected https://host/path in "
            "ASCII"
        )


# --- sessions that end ---------------------------------------------------------------------------
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_is_renewed_on_the_same_connection(authority: Authority, mechanism: str) -> None:
    with PlayedBroker(
        mechanisms=MECHANISMS, users={USER: PASSWORD}, session_lifetime_ms=1_000
    ) as broker:
        given = settings(broker, authority, mechanism, jaas(mechanism))
        with BlockingClient(given) as client:

            def has_authenticated_often() -> bool:
                client.refresh(None)
                return len(broker.authentications) >= 4

            eventually(has_authenticated_often, deadline_s=60, what="four authentications")
            opened = broker.connections
            # Bootstrap server and broker are one address; a slow machine may lose a session.
            assert opened < 4


def test_a_session_whose_renewal_is_refused_ends_the_client_s_work(authority: Authority) -> None:
    with (
        PlayedBroker(
            mechanisms=MECHANISMS, users={USER: PASSWORD}, session_lifetime_ms=1_000
        ) as broker,
        BlockingClient(settings(broker, authority, "PLAIN", jaas("PLAIN"))) as client,
    ):
        client.refresh(None)
        broker.users[USER] = "other"

        def is_refused() -> bool:
            try:
                client.refresh(None)
            except AuthenticationFailed as error:
                return "refused SASL PLAIN for user 'alice'" in str(error)
            return False

        eventually(is_refused, deadline_s=60, what="the refusal")


# --- secrets -------------------------------------------------------------------------------------
@pytest.mark.parity("security: secrets stay secret")
def test_no_log_line_has_a_secret(
    broker: PlayedBroker, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def try_it(given: dict[str, str]) -> str:
        try:
            return str(connect(given))
        except (TlsFailed, KlogError) as error:
            return f"{error!r} {error.args!r} {error.__cause__!r}"

    attempts: list[Callable[[], str]] = [
        lambda m=m, p=p: try_it(settings(broker, authority, m, jaas(m, password=p)))
        for m in PASSWORD_MECHANISMS
        for p in (PASSWORD, "HIDDEN")
    ]
    with caplog.at_level(logging.DEBUG), TokenEndpoint() as endpoint:
        endpoint.answers = [(503, b"HIDDEN+/", {})]
        given = _from(endpoint, broker, authority)
        attempts.append(lambda: try_it(given))
        seen = [attempt() for attempt in attempts]
    assert seen.count("1") == 4
    everything = caplog.text + "".join(seen)
    assert "cannot get a token, trying again: token endpoint" in everything
    for secret in ("HIDDEN", PASSWORD, "t0ken"):
        assert secret not in everything
