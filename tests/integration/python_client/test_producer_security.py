"""A producer over TLS and SASL, with librdkafka's names of settings and with Java's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.kafka import KafkaError, Producer
from tests.integration.python_client.conftest import Reports, purged_at_the_end
from tests.support.security.certs import Authority
from tests.support.security.kafka_listeners import MECHANISMS, PASSWORD, USER, jaas
from tests.support.security.server import PlayedBroker, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("producer"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[PlayedBroker]:
    """A klog broker behind TLS and SASL."""
    context = server_context(authority.broker().pem_file())
    with (
        PlayedBroker(tls=context, mechanisms=MECHANISMS, users={USER: PASSWORD}) as front,
        testing.Broker(advertised_listeners=f"PLAINTEXT://{front.address}") as broker,
    ):
        host, _, port = broker.bootstrap_servers.partition(":")
        front.broker = (host, int(port))
        yield front


def own_names(front: PlayedBroker, ca_file: Path, mechanism: str, password: str) -> dict[str, str]:
    """Return settings by librdkafka's names."""
    return {
        "bootstrap.servers": front.address,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(ca_file),
        "sasl.mechanisms": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_over_tls_and_sasl(
    secured: PlayedBroker, authority: Authority, reports: Reports, mechanism: str
) -> None:
    by_librdkafka = own_names(secured, authority.pem_file(), mechanism, PASSWORD)
    by_java = {
        "bootstrap.servers": secured.address,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(authority.pem_file()),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism),
    }
    for given in (by_librdkafka, by_java):
        with Producer(given) as producer:
            for _ in range(200):
                producer.produce(f"secure-{mechanism}", bytes(10_000), callback=reports.note)
    assert reports.errors == [None] * 400


def test_records_of_a_user_with_a_wrong_password(
    secured: PlayedBroker, authority: Authority, reports: Reports
) -> None:
    given = own_names(secured, authority.pem_file(), "PLAIN", "wrong")
    with purged_at_the_end({**given, "delivery.timeout.ms": 1_000}) as producer:
        producer.produce("secure", b"v", callback=reports.note)
        assert producer.flush(30) == 0
    assert reports.errors == [KafkaError._MSG_TIMED_OUT]
