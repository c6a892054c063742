"""The client over TLS: records both ways, certificates of both sides, and failures."""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import ClientError, TimedOut, TlsFailed
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from tests.support.client.cases import read
from tests.support.security.certs import STORE_PASSWORD, Authority, Identity
from tests.support.security.server import PlayedBroker, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def shown(authority: Authority) -> Path:
    """The broker's key and certificate."""
    return authority.broker().pem_file()


@pytest.fixture(scope="module")
def secured(shown: Path) -> Iterator[str]:
    """A klog broker behind TLS."""
    with PlayedBroker(tls=server_context(shown)) as front:
        listeners = f"PLAINTEXT://{front.address}"
        with testing.Broker(advertised_listeners=listeners, message_max_bytes=40_000_000) as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            front.broker = (host, int(port))
            yield front.address


def settings(address: str, authority: Authority | None, **more: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in more.items()}
    trust = {} if authority is None else {"ssl.truststore.location": str(authority.pem_file())}
    return {"bootstrap.servers": address, "security.protocol": "SSL", **trust, **named}


def brokers(given: dict[str, str]) -> int:
    with BlockingClient(given) as client:
        return len(client.refresh(None).brokers)


def failure(given: dict[str, str], kind: type[ClientError] = TlsFailed) -> str:
    """Return the client's error; errors that may pass are retried for two seconds."""
    limits = {"default.api.timeout.ms": "2000", "request.timeout.ms": "2000"}
    with pytest.raises(kind) as caught:
        brokers({**given, **limits, "delivery.timeout.ms": "2000"})
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- records -------------------------------------------------------------------------------------
@pytest.mark.parity("security: SSL")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_sets_of_records_go_both_ways(
    secured: str, authority: Authority, version: str
) -> None:
    given = settings(secured, authority, ssl__enabled__protocols=version)
    given |= {"max.request.size": "40000000", "max.partition.fetch.bytes": "40000000"}
    with BlockingClient(given) as client:
        admin, partition = Admin(client=client), TopicPartition(f"large-{version}", 0)
        configs = {"max.message.bytes": "40000000", "retention.ms": "-1"}
        admin.create_topics([NewTopic(partition.topic, 1, 1, configs)])
        builder = BatchBuilder()
        for number in range(24):
            builder.append(b"%d" % number, bytes([number]) * 1_000_000, 1_000)
        producer = Producer(client)
        producer.add(partition, builder.build(), builder.record_count)
        producer.flush()
        records = read(client, partition, 0, 24)
    assert [record.key for record in records] == [b"%d" % number for number in range(24)]
    assert all(record.value == bytes([n]) * 1_000_000 for n, record in enumerate(records))


# --- certificates of the broker ------------------------------------------------------------------
def test_a_broker_of_another_authority_is_not_trusted(
    secured: str, authority: Authority, tmp_path: Path
) -> None:
    text = failure(settings(secured, None))
    assert text.startswith(f"the certificate of {secured} is not trusted (")
    assert text.endswith(
        "expected one from this system's authorities; set ssl.truststore.location or "
        "ssl.truststore.certificates to the authority that signed it"
    )
    other = Authority(tmp_path, "other")
    text = failure(settings(secured, other))
    assert f"the certificates of ssl.truststore.location {tmp_path / 'ca.pem'};" in text


def test_the_broker_s_own_certificate_can_be_trusted_by_itself(
    secured: str, authority: Authority, shown: Path
) -> None:
    leaf = shown.read_text().partition("-----BEGIN CERTIFICATE")
    first = "-----BEGIN CERTIFICATE" + leaf[2].partition("-----END CERTIFICATE-----")[0]
    given = settings(secured, None)
    given["ssl.truststore.certificates"] = first + "-----END CERTIFICATE-----"
    assert brokers(given) == 1


@pytest.mark.parity("security: host name verification")
def test_a_certificate_must_be_for_the_host(authority: Authority, tmp_path: Path) -> None:
    elsewhere = authority.issue("elsewhere", ("elsewhere",), ("127.0.0.2",)).pem_file()
    with PlayedBroker(tls=server_context(elsewhere)) as broker:
        name, address = broker.address, f"127.0.0.1:{broker.port}"
        for given, host in ((name, "localhost"), (address, "127.0.0.1")):
            assert failure(settings(given, authority)) == (
                f"the certificate of {given} is not for '{host}': use a name that it has in "
                "bootstrap.servers and in the brokers' advertised.listeners, or turn the check off "
                'with ssl.endpoint.identification.algorithm=""'
            )
        assert broker.connections == 2
        unchecked = settings(name, authority, ssl__endpoint__identification__algorithm="")
        assert brokers(unchecked) == 1
        # Without the check of names a certificate must be trusted all the same.
        assert "is not trusted" in failure(
            {**unchecked, "ssl.truststore.location": str(Authority(tmp_path, "other").pem_file())}
        )


@pytest.mark.parity("security: host name verification")
def test_a_common_name_serves_where_there_are_no_alternatives(authority: Authority) -> None:
    with PlayedBroker(tls=server_context(authority.issue("localhost").pem_file())) as broker:
        assert brokers(settings(broker.address, authority)) == 1


def test_a_certificate_that_has_expired(authority: Authority) -> None:
    old = authority.issue("old", ("localhost",), expired=True).pem_file()
    with PlayedBroker(tls=server_context(old)) as broker:
        assert failure(settings(broker.address, authority)) == (
            f"a certificate that {broker.address} shows has expired: renew it, or check this "
            "machine's clock"
        )
        assert broker.connections == 1


# --- certificates of the client ------------------------------------------------------------------
@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


@pytest.fixture(scope="module", params=["TLSv1_2", "TLSv1_3"])
def wanting(
    request: pytest.FixtureRequest, authority: Authority, shown: Path
) -> Iterator[PlayedBroker]:
    """A broker that wants a certificate of its clients."""
    newest = ssl.TLSVersion[request.param]
    context = server_context(shown, clients_of=authority.pem_file(), newest=newest)
    with PlayedBroker(tls=context) as broker:
        yield broker


@pytest.mark.parity("security: PEM stores")
def test_a_client_shows_a_certificate_in_pem(
    wanting: PlayedBroker, authority: Authority, client: Identity
) -> None:
    given = settings(wanting.address, authority)
    assert brokers({**given, "ssl.keystore.location": str(client.pem_file())}) == 1
    texts = {"ssl.keystore.key": client.key_pem, "ssl.keystore.certificate.chain": client.chain_pem}
    assert brokers({**given, **texts, "ssl.keystore.type": "PEM"}) == 1


@pytest.mark.parity("security: PKCS12 stores")
def test_a_client_shows_a_certificate_in_pkcs12(
    wanting: PlayedBroker, authority: Authority, client: Identity
) -> None:
    given = settings(wanting.address, None)
    given |= {
        "ssl.truststore.location": str(authority.pkcs12_file()),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.location": str(client.pkcs12_file()),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.keystore.type": "PKCS12",
    }
    assert brokers(given) == 1


def test_a_client_without_a_certificate_or_with_one_of_strangers(
    wanting: PlayedBroker, authority: Authority, tmp_path: Path
) -> None:
    given = settings(wanting.address, authority)
    text = failure(given, ClientError)
    # The alert comes (of two kinds before TLS 1.3), or the connection's end before it.
    assert re.search(r"(asks|it asks|does it ask) for a certificate of this client", text)
    assert "ssl.keystore.location" in text
    stranger = Authority(tmp_path, "other").issue("client").pem_file()
    text = failure({**given, "ssl.keystore.location": str(stranger)}, ClientError)
    assert "does not accept this client's certificate" in text or "closed the connection" in text


# --- the wrong port ------------------------------------------------------------------------------
def test_tls_to_a_plaintext_port_and_back(secured: str, authority: Authority, shown: Path) -> None:
    with testing.Broker() as plain:
        text = failure(settings(plain.bootstrap_servers, authority), TimedOut)
        said = f"{plain.bootstrap_servers} closed the connection during TLS's handshake: has that "
        assert f"{said}listener TLS? security.protocol says so" in text
    with PlayedBroker(tls=server_context(shown)) as broker:
        text = failure({"bootstrap.servers": broker.address}, ClientError)
        # The alert comes, or the connection's end before it.
        alert = f"{broker.address}: the broker sent a TLS alert instead of a reply: set security."
        end = f"{broker.address} closed the connection while asking for versions: has this listene"
        assert alert in text or end in text


def test_tls_to_what_speaks_something_else(authority: Authority) -> None:
    with PlayedBroker() as plain:
        # The plain listener reads the ClientHello as a frame of more than 16 MB, and waits for it.
        text = failure(
            settings(plain.address, authority, socket__connection__setup__timeout__ms="500"),
            TimedOut,
        )
    said = f"{plain.address} did not finish TLS's handshake in time: has that listener TLS? "
    assert f"{said}security.protocol says so" in text


def test_versions_and_suites_without_any_in_common(authority: Authority, shown: Path) -> None:
    context = server_context(shown, newest=ssl.TLSVersion.TLSv1_2)
    with PlayedBroker(tls=context) as broker:
        only_newest = settings(broker.address, authority, ssl__enabled__protocols="TLSv1.3")
        assert failure(only_newest).startswith(
            f"{broker.address} has no TLS in common with this client, which speaks TLSv1.3: check "
            "ssl.enabled.protocols and ssl.cipher.suites on both sides ("
        )
        suites = settings(
            broker.address, authority, ssl__cipher__suites="TLS_RSA_WITH_AES_128_CBC_SHA"
        )
        assert "TLSv1.2, TLSv1.3 with the cipher suites of the settings: check" in failure(suites)


# --- renewal -------------------------------------------------------------------------------------
def test_a_truststore_is_read_again_when_it_has_changed(
    authority: Authority, shown: Path, tmp_path: Path
) -> None:
    store = tmp_path / "trust.pem"
    store.write_text(Authority(tmp_path / "other", "other").pem)
    with PlayedBroker(tls=server_context(shown)) as broker:
        given = settings(broker.address, None) | {"ssl.truststore.location": str(store)}
        with BlockingClient(given) as one_client:
            with pytest.raises(TlsFailed, match="is not trusted"):
                one_client.refresh(None)
            store.write_text(authority.pem)
            assert len(one_client.refresh(None).brokers) == 1
            broker.cut()
            assert len(one_client.refresh(None).brokers) == 1
