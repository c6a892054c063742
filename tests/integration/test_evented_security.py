"""The evented client in a background thread: host names, TLS, SASL, and their failures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    TlsFailed,
)
from pyspark_klog.protocol.apis.fetch import FetchResponse
from pyspark_klog.protocol.apis.produce import ProduceResponse
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from tests.support.client.thread_client import ThreadClient
from tests.support.eventually import eventually
from tests.support.raw_requests import fetch_request, produce_request
from tests.support.security.certs import Authority
from tests.support.security.kafka_listeners import MECHANISMS, PASSWORD, USER, jaas
from tests.support.security.server import PlayedBroker, server_context

_RECORDS = 24


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("evented"))


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Path:
    """The broker's key and certificate."""
    return authority.broker().pem_file()


def settings(broker: PlayedBroker, authority: Authority | None = None, **more: str) -> Any:
    """Settings for a played broker, with the protocol that fits it."""
    tls, sasl = broker.tls is not None, bool(broker.mechanisms)
    given = {"bootstrap.servers": broker.address}
    given["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    if not tls and not sasl:
        given["security.protocol"] = "PLAINTEXT"
    if authority is not None:
        given["ssl.truststore.location"] = str(authority.pem_file())
    return given | {name.replace("__", "."): value for name, value in more.items()}


def failure(given: dict[str, str], kind: type[ClientError]) -> str:
    """Return the text of the error with which the first request fails."""
    with ThreadClient(given) as client, pytest.raises(kind) as caught:
        client.brokers()
    return str(caught.value)


# --- connecting ----------------------------------------------------------------------------------
def test_a_broker_has_a_name_or_an_address() -> None:
    with PlayedBroker() as broker:
        for host in ("localhost", "127.0.0.1"):
            with ThreadClient({"bootstrap.servers": f"{host}:{broker.port}"}) as client:
                assert client.brokers() == 1


def test_a_name_without_an_address() -> None:
    text = failure({"bootstrap.servers": "nowhere.invalid:9092"}, ConnectionFailed)
    assert text.startswith("could not connect to nowhere.invalid:9092: ")


def test_a_lost_connection_is_made_again() -> None:
    with PlayedBroker() as broker, ThreadClient(settings(broker)) as client:
        assert client.brokers() == 1
        broker.cut()

        def works_again() -> bool:
            try:
                return client.brokers() == 1 and broker.connections > 1
            except ConnectionFailed:
                return False

        eventually(works_again, deadline_s=30, what="a second connection")


# --- TLS -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def secured(shown: Path) -> Iterator[PlayedBroker]:
    """A klog broker behind TLS."""
    with PlayedBroker(tls=server_context(shown)) as front:
        listeners = f"PLAINTEXT://{front.address}"
        with testing.Broker(advertised_listeners=listeners, message_max_bytes=40_000_000) as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            front.broker = (host, int(port))
            yield front


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_requests_and_responses_over_tls(
    secured: PlayedBroker, authority: Authority, version: str
) -> None:
    given = settings(secured, authority, ssl__enabled__protocols=version)
    topic = f"large-{version}"
    with BlockingClient(given) as client:
        configs = {"max.message.bytes": "40000000", "retention.ms": "-1"}
        Admin(client=client).create_topics([NewTopic(topic, 1, 1, configs)])
    builder = BatchBuilder()
    for number in range(_RECORDS):
        builder.append(b"%d" % number, bytes([number]) * 1_000_000, 1_000)
    batch = bytes(builder.build())
    with ThreadClient(given) as threaded:
        written = threaded.call(ProduceResponse, lambda _: produce_request(topic, batch), high=12)
        assert written.responses[0].partition_responses[0].error_code == 0
        fetch = fetch_request(topic, partition_max_bytes=40_000_000)
        found = threaded.call(FetchResponse, lambda _: fetch, high=12)
        assert threaded.brokers() == 1
    view = BatchView(bytearray(found.responses[0].partitions[0].records))
    assert view.is_crc_valid()
    records = list(view.records())
    assert [record.key for record in records] == [b"%d" % number for number in range(_RECORDS)]
    assert all(record.value == bytes([n]) * 1_000_000 for n, record in enumerate(records))


def test_many_requests_at_once_over_tls(secured: PlayedBroker, authority: Authority) -> None:
    with ThreadClient(settings(secured, authority)) as client:
        fetch = fetch_request("none", max_wait_ms=0)
        calls = [client.send(FetchResponse, lambda _: fetch, high=12) for _ in range(200)]
        assert all(call.result(60).error_code == 0 for call in calls)


def test_a_broker_of_another_authority(
    secured: PlayedBroker, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    text = failure(settings(secured, other), TlsFailed)
    assert text.startswith(f"the certificate of {secured.address} is not trusted (")


def test_a_certificate_for_another_host(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", ("elsewhere",), ("127.0.0.2",)).pem_file()
    with PlayedBroker(tls=server_context(elsewhere)) as broker:
        text = failure(settings(broker, authority), TlsFailed)
    assert f"the certificate of {broker.address} is not for 'localhost'" in text


def test_a_listener_without_tls(authority: Authority) -> None:
    with testing.Broker() as broker:
        given = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(authority.pem_file()),
        }
        text = failure(given, ClientError)
    assert "has that listener TLS?" in text or "does not speak TLS" in text


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_that_wants_a_certificate(authority: Authority, shown: Path, version: str) -> None:
    context = server_context(shown, clients_of=authority.pem_file())
    with PlayedBroker(tls=context) as broker:
        given = settings(broker, authority, ssl__enabled__protocols=version)
        text = failure(given, ClientError)
        assert f"{broker.address} " in text and "certificate of this client" in text
        own = authority.issue("client", ("client",)).pem_file()
        with ThreadClient({**given, "ssl.keystore.location": str(own)}) as client:
            assert client.brokers() == 1


# --- SASL ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism(authority: Authority, shown: Path, mechanism: str, has_tls: bool) -> None:
    tls = server_context(shown) if has_tls else None
    with PlayedBroker(tls=tls, mechanisms=MECHANISMS, users={USER: PASSWORD}) as broker:
        given = settings(broker, authority if has_tls else None, sasl__mechanism=mechanism)
        with ThreadClient({**given, "sasl.jaas.config": jaas(mechanism)}) as client:
            assert client.brokers() == 1
        assert [name for name, _ in broker.authentications] == [mechanism]


def test_a_wrong_password() -> None:
    with PlayedBroker(mechanisms=MECHANISMS, users={USER: "other"}) as broker:
        given = settings(broker, sasl__mechanism="PLAIN")
        text = failure({**given, "sasl.jaas.config": jaas("PLAIN")}, AuthenticationFailed)
    assert f"refused SASL PLAIN for user '{USER}'" in text


def test_a_session_is_renewed_on_the_same_connection() -> None:
    with PlayedBroker(
        mechanisms=MECHANISMS, users={USER: PASSWORD}, session_lifetime_ms=1_000
    ) as broker:
        given = settings(broker, sasl__mechanism="SCRAM-SHA-256")
        with ThreadClient({**given, "sasl.jaas.config": jaas("SCRAM-SHA-256")}) as client:

            def has_authenticated_often() -> bool:
                client.brokers()
                return len(broker.authentications) >= 4

            eventually(has_authenticated_often, deadline_s=60, what="four authentications")
        # A slow machine may lose a session.
        assert broker.connections < 4


def test_a_session_whose_renewal_is_refused_fails_its_requests() -> None:
    with PlayedBroker(
        mechanisms=MECHANISMS, users={USER: PASSWORD}, session_lifetime_ms=1_000
    ) as broker:
        given = settings(broker, sasl__mechanism="PLAIN")
        with ThreadClient({**given, "sasl.jaas.config": jaas("PLAIN")}) as client:
            client.brokers()
            broker.users[USER] = "other"

            def is_refused() -> bool:
                try:
                    client.brokers()
                except AuthenticationFailed as error:
                    return "refused SASL PLAIN" in str(error)
                return False

            eventually(is_refused, deadline_s=60, what="the refusal")
