"""TLS and SASL of klog's client on Apache Kafka 3.9 and 4.3, beside Spark's own connector."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ReplyUnreadable,
    SettingError,
    TimedOut,
    TlsFailed,
)
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.properties import escape
from pyspark_klog.security.jaas import read_jaas
from pyspark_klog.security.oauthbearer import unsecured_token
from pyspark_klog.security.secret import Secret
from tests.support.client.cases import batch, read
from tests.support.eventually import eventually
from tests.support.peers import (
    NEWEST_KAFKA,
    OLDEST_KAFKA,
    PARITY_VARIABLE,
    KafkaServer,
    java,
    kafka_jars,
)
from tests.support.security.certs import KEY_PASSWORD, STORE_PASSWORD, Authority
from tests.support.security.kafka_listeners import (
    MECHANISMS,
    PLAIN_MODULE,
    SCRAM_USERS,
    jaas,
    listener_properties,
    session_properties,
)

if TYPE_CHECKING:
    from pyspark.sql import Row

LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
    "PASSWORDS": "SASL_PLAINTEXT",
    "SECURED": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "ONLYPLAIN": "SASL_SSL",
}
LIMITS = {
    "default.api.timeout.ms": "5000",
    "request.timeout.ms": "5000",
    "delivery.timeout.ms": "5000",
}


class Kafka:
    """A node of Apache Kafka with every kind of listener, and the authority of its certificates."""

    def __init__(self, server: KafkaServer, authority: Authority) -> None:
        self.server = server
        self.authority = authority

    def settings(self, listener: str, mechanism: str = "", **more: str) -> dict[str, str]:
        """A client's settings for a listener."""
        protocol = LISTENERS[listener]
        given = {
            "bootstrap.servers": self.server.address_of(listener),
            "security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            given["ssl.truststore.location"] = str(self.authority.pem_file())
        if mechanism:
            given |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism)}
        return given | {name.replace("__", "."): value for name, value in more.items()}


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    authority = Authority(tmp_path_factory.mktemp(f"ca-{request.param}"))
    with KafkaServer(
        request.param,
        properties=listener_properties(authority, LISTENERS) | session_properties("SHORT", 2_000),
        listeners=LISTENERS,
        format_arguments=SCRAM_USERS,
    ) as server:
        yield Kafka(server, authority)


def works(settings: dict[str, str]) -> None:
    """Creates a topic, writes to it and reads it."""
    partition = TopicPartition(f"t-{os.urandom(6).hex()}", 0)
    with BlockingClient(settings) as client:
        configs = {"retention.ms": "-1"}
        Admin(client=client).create_topics([NewTopic(partition.topic, 1, 1, configs)])
        producer = Producer(client)
        data, count = batch([b"a", b"b", b"c"], size=200_000)
        producer.add(partition, data, count)
        producer.flush()
        assert [record.key for record in read(client, partition, 0, 3)] == [b"a", b"b", b"c"]


def failure(settings: dict[str, str], kind: type[ClientError]) -> str:
    with pytest.raises(kind) as caught, BlockingClient({**settings, **LIMITS}) as client:
        client.refresh(None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what works ----------------------------------------------------------------------------------
@pytest.mark.parity("security: SSL", "security: host name verification")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls(kafka: Kafka, version: str) -> None:
    works(kafka.settings("TLS", ssl__enabled__protocols=version))


@pytest.mark.parity("security: PEM stores", "security: PKCS12 stores")
def test_certificates_of_clients(kafka: Kafka) -> None:
    client = kafka.authority.issue("client")
    texts = {
        "ssl.keystore.key": client.encrypted_key_pem,
        "ssl.keystore.certificate.chain": client.chain_pem,
        "ssl.key.password": KEY_PASSWORD,
    }
    works(kafka.settings("MUTUAL") | texts)
    stores = {
        "ssl.keystore.location": str(client.pkcs12_file()),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.location": str(kafka.authority.pkcs12_file()),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    works(kafka.settings("MUTUAL") | stores)


@pytest.mark.parity(
    "security: SASL_PLAINTEXT",
    "security: SASL_SSL",
    "security: PLAIN",
    "security: SCRAM-SHA-256",
    "security: SCRAM-SHA-512",
)
@pytest.mark.parametrize("listener", ["PASSWORDS", "SECURED"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sasl(kafka: Kafka, listener: str, mechanism: str) -> None:
    works(kafka.settings(listener, mechanism))


def kafka_token(options: dict[str, str]) -> object:
    """A token for a broker that takes unsecured ones."""
    claims = {"unsecuredLoginStringClaim_sub": Secret(options["who"])}
    token = unsecured_token(claims, epoch_ms(), "test")
    return token.value.reveal(), token.expires_ms


@pytest.mark.parity("security: OAUTHBEARER token callback")
def test_a_token_from_a_function(kafka: Kafka) -> None:
    given = kafka.settings("SECURED", "OAUTHBEARER")
    given["sasl.jaas.config"] = given["sasl.jaas.config"].replace(
        "unsecuredLoginStringClaim_sub", "who"
    )
    works(given | {"sasl.login.callback.handler.class": f"{__name__}:kafka_token"})


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sessions_are_renewed_on_the_same_connection(kafka: Kafka, mechanism: str) -> None:
    with BlockingClient(kafka.settings("SHORT", mechanism)) as client:
        client.refresh(None)
        first = client.link_to_any(client.deadline())
        began_ms = client.now_ms()
        renewed = 0

        def has_outlived_its_session() -> bool:
            nonlocal renewed
            client.refresh(None)
            link = client.link_to_any(client.deadline())
            # Kafka closes a connection that is used after its session: this one goes on.
            assert link is first
            renewed += 1
            return client.now_ms() - began_ms > 5_000

        eventually(has_outlived_its_session, deadline_s=60, what="three sessions of two seconds")
        assert renewed > 2


@pytest.mark.parametrize(
    "listener, mechanism",
    [("TLS", ""), ("PASSWORDS", "PLAIN"), ("SECURED", "SCRAM-SHA-512"), ("SECURED", "OAUTHBEARER")],
)
def test_the_klog_command_with_a_file_of_settings(
    kafka: Kafka, tmp_path: Path, listener: str, mechanism: str
) -> None:
    file = tmp_path / "client.properties"

    def klog(*arguments: str, **settings: str) -> Result:
        given = kafka.settings(listener, mechanism, **settings)
        file.write_text("".join(f"{name}={escape(text)}\n" for name, text in given.items()))
        return CliRunner().invoke(command, [*arguments, "--command-config", str(file)])

    topic = f"t-{os.urandom(6).hex()}"
    assert klog("topics", "create", topic).output == f"created {topic}: 1 partitions\n"
    assert topic in klog("topics", "list").output
    (found,) = json.loads(klog("log-dirs", "--topic", topic, "--json").output)
    assert found["bytes"] == 0
    # A client without the listener's security settings is refused.
    refused = klog("topics", "list", "--timeout", "5000", security__protocol="PLAINTEXT")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("klog: ")
    if mechanism == "PLAIN":
        wrong = jaas(mechanism, password="HIDDEN")
        refused = klog("topics", "list", sasl__jaas__config=wrong)
        assert (refused.exit_code, "HIDDEN" in refused.stderr) == (1, False)
        assert "check user and password in sasl.jaas.config" in refused.stderr


# --- what is refused -----------------------------------------------------------------------------
@pytest.mark.parametrize("listener", ["PASSWORDS", "SECURED"])
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password(kafka: Kafka, listener: str, mechanism: str) -> None:
    given = kafka.settings(listener, mechanism)
    given["sasl.jaas.config"] = jaas(mechanism, password="HIDDEN")
    text = failure(given, AuthenticationFailed)
    address = kafka.server.address_of(listener)
    assert text.startswith(f"{address} refused SASL {mechanism} for user 'alice': Authentication f")
    assert text.endswith("; check user and password in sasl.jaas.config")
    assert "HIDDEN" not in text


def test_an_expired_token(kafka: Kafka) -> None:
    given = kafka.settings("SECURED", "OAUTHBEARER")
    config = given["sasl.jaas.config"].replace(";", ' unsecuredLoginLifetimeSeconds="-100";')
    assert failure({**given, "sasl.jaas.config": config}, AuthenticationFailed) == (
        f"{kafka.server.address_of('SECURED')} refused SASL OAUTHBEARER: status invalid_token; "
        "check where the token comes from"
    )


def test_an_unknown_mechanism(kafka: Kafka) -> None:
    assert failure(kafka.settings("ONLYPLAIN", "SCRAM-SHA-256"), AuthenticationFailed) == (
        f"{kafka.server.address_of('ONLYPLAIN')} does not have SASL mechanism SCRAM-SHA-256; it "
        "has PLAIN: set sasl.mechanism to one of these, or enable it in the broker's listener"
    )


@pytest.mark.parity("security: host name verification")
def test_a_certificate_for_another_name_or_one_that_has_expired(kafka: Kafka) -> None:
    text = failure(kafka.settings("ELSEWHERE"), TlsFailed)
    address = kafka.server.address_of("ELSEWHERE")
    assert text.startswith(f"the certificate of {address} is not for 'localhost': use a name that")
    works(kafka.settings("ELSEWHERE", ssl__endpoint__identification__algorithm=""))
    assert failure(kafka.settings("EXPIRED"), TlsFailed) == (
        f"a certificate that {kafka.server.address_of('EXPIRED')} shows has expired: renew it, or "
        "check this machine's clock"
    )


def test_clients_without_a_certificate_or_with_a_stranger_s(kafka: Kafka, tmp_path: Path) -> None:
    text = failure(kafka.settings("MUTUAL"), ClientError)
    assert "for a certificate of this client" in text or "does it ask for a certificate" in text
    stranger = Authority(tmp_path, "other").issue("client").pem_file()
    given = kafka.settings("MUTUAL", ssl__keystore__location=str(stranger))
    text = failure(given, ClientError)
    assert "does not accept this client's certificate" in text or "closed the connection" in text


def test_the_wrong_port(kafka: Kafka) -> None:
    server = kafka.server
    tls = kafka.settings("TLS")
    text = failure({**tls, "bootstrap.servers": server.bootstrap_servers}, TimedOut)
    assert "closed the connection during TLS's handshake: has that listener TLS?" in text
    for listener in ("TLS", "SECURED"):
        address = server.address_of(listener)
        assert failure({"bootstrap.servers": address}, ReplyUnreadable) == (
            f"{address}: the broker sent a TLS alert instead of a reply: set security.protocol to "
            "SSL (or SASL_SSL), or use the port of a listener without TLS"
        )
    for given in ({}, tls):
        listener = "SECURED" if given else "PASSWORDS"
        text = failure({**given, "bootstrap.servers": server.address_of(listener)}, TimedOut)
        assert "closed the connection at the first request, METADATA: has this listener SASL, " in (
            text
        )
    sasl = kafka.settings("SECURED", "PLAIN", bootstrap__servers=server.address_of("TLS"))
    assert failure(sasl, AuthenticationFailed).startswith(
        f"{server.address_of('TLS')} is a listener without SASL: set security.protocol to PLAINTEX"
    )


# --- sasl.jaas.config, beside Kafka's own reader --------------------------------------------------
_PARTS = ["'a'", '"b c"', r'"q\"\\\n\101\400"', "w0rd-._$", "1x", "-x", "-1", "é€", "a/b", "a@b"]
_PARTS += ["=", "==", ";", ";;", "#", "/*x*/", "//x\n", '"open', "'line\n'", "", "{", "%", "\\"]
CONFIGS = [f"{PLAIN_MODULE} required username={part};" for part in _PARTS]
CONFIGS += [f"{PLAIN_MODULE} required username={part} password='p';" for part in _PARTS]
CONFIGS += [f"{PLAIN_MODULE} required {part}='p' ;" for part in _PARTS]
CONFIGS += [f"{PLAIN_MODULE} {part} username='u';" for part in ("optional", "SUFFICIENT", "no", "")]
CONFIGS += [f"{part} required username='u';" for part in _PARTS]
CONFIGS += [f"{PLAIN_MODULE} required username='u'{part}" for part in _PARTS]


@pytest.mark.parity("security: jaas: PlainLoginModule")
@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_login_modules_are_read_as_kafka_reads_them(version: str) -> None:
    def packed(text: str) -> str:
        return base64.b64encode(text.encode()).decode() or "-"

    lines = "".join(f"{packed(config)}\n" for config in CONFIGS)
    source = Path(__file__).parents[1] / "support" / "java" / "JaasConfigs.java"
    done = subprocess.run(
        [java(), "-cp", f"{kafka_jars(version)}{os.sep}*", str(source)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(CONFIGS)
    differences = []
    for config, answer in zip(CONFIGS, answers, strict=True):
        try:
            module = read_jaas(Secret(config))
        except SettingError:
            ours = "refused"
        else:
            pairs = sorted((name, value.reveal()) for name, value in module.options.items())
            words = [module.class_name, *(text for pair in pairs for text in pair)]
            ours = " ".join(map(packed, words)) + ";"
        if ours != answer:
            differences.append((config, ours, answer))
    # Java takes an option without a name, and of a quote that is not closed on its line what there
    # is; klog refuses both.
    for config, ours, answer in differences:
        assert ours == "refused"
        assert answer == "nameless" or "'line\n'" in config or '"open' in config, config


# --- the same job with Spark's own connector ------------------------------------------------------
@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    os.environ[PARITY_VARIABLE] = NEWEST_KAFKA  # so that the session has the connector's jars
    from tests.support.spark.session import spark_session

    yield spark_session()


@pytest.mark.parity("security: SASL_SSL", "security: jaas: ScramLoginModule")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_job_of_the_peer_runs_with_the_same_options(
    kafka: Kafka, spark: Any, mechanism: str
) -> None:
    options = {
        f"kafka.{name}": value for name, value in kafka.settings("SECURED", mechanism).items()
    }
    options["kafka.ssl.truststore.type"] = "PEM"
    topic = f"job-{os.urandom(6).hex()}"
    found: dict[str, list[Row]] = {}
    for engine in ("kafka", "klog"):
        rows = spark.range(20).selectExpr("string(id) as key", f"'{engine}' as value")
        rows.write.format(engine).options(**options, topic=topic).mode("append").save()
    for engine in ("kafka", "klog"):
        frame = spark.read.format(engine).options(**options, subscribe=topic).load()
        found[engine] = sorted(frame.select("key", "value", "offset").collect())
    assert len(found["klog"]) == 40
    assert found["klog"] == found["kafka"]
