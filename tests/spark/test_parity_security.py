"""Secured jobs in Spark, with the options of `format("kafka")`: TLS, SASL, and hidden secrets.

The tests play secured servers in front of klog's broker. `./dev peers parity` uses Apache Kafka's
own secured listeners instead, and compares Spark's connector with the same options.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.parity.fixtures import new_kafka
from tests.support.parity.scenarios import Engine, Parity
from tests.support.peers import NEWEST_KAFKA, KafkaServer, kafka_release
from tests.support.security.certs import KEY_PASSWORD, STORE_PASSWORD, Authority
from tests.support.security.kafka_listeners import (
    MECHANISMS,
    PASSWORD,
    PLAIN_MODULE,
    SCRAM_USERS,
    jaas,
    listener_properties,
)
from tests.support.security.listeners import LISTENERS, Listeners, played_listeners
from tests.support.security.spark_job import REDACTED
from tests.support.spark import ready_python
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]
WRONG = "wr0ng-passw0rd"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def kafka_server(authority: Authority) -> Iterator[KafkaServer]:
    """Apache Kafka as in the other tests of parity, and with secured listeners."""
    with new_kafka(
        kafka_release() or NEWEST_KAFKA,
        listener_properties(authority, LISTENERS),
        listeners=LISTENERS,
        format_arguments=SCRAM_USERS,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Listeners]:
    """The secured listeners of the broker that `parity` has."""
    if kafka_release() is None:
        servers = request.getfixturevalue("spark_broker").bootstrap_servers
        with played_listeners(authority, servers) as listeners:
            yield listeners
    else:
        kafka = request.getfixturevalue("kafka_server")
        yield Listeners(authority, {name: kafka.address_of(name) for name in LISTENERS})


EXPECTED = sorted((str(number), f"v{number}") for number in range(20))


def _copied(parity: Parity, options: Mapping[str, str], folder: Path) -> None:
    """A batch writes a topic, a stream copies it to another, a batch reads that: all secured."""

    def scenario(engine: Engine) -> "DataFrame":
        source, target = engine.topics.create(2), engine.topics.create(2)
        rows = engine.spark.range(20).selectExpr(
            "string(id) as key", "concat('v', string(id)) as value"
        )
        engine.append(rows, topic=source, **options)
        stream = engine.stream(subscribe=source, startingOffsets="earliest", **options)
        query = engine.append_stream(stream.select("key", "value"), folder, topic=target, **options)
        assert query.awaitTermination(120)
        frame = engine.batch(subscribe=target, **options)
        return frame.selectExpr("string(key) as key", "string(value) as value")

    assert sorted(map(tuple, parity.same(scenario).collect())) == EXPECTED


def _works(parity: Parity, options: Mapping[str, str]) -> None:
    """A batch writes a topic and a batch reads it."""

    def scenario(engine: Engine) -> "DataFrame":
        topic = engine.topics.create(2)
        rows = engine.spark.range(20).selectExpr(
            "string(id) as key", "concat('v', string(id)) as value"
        )
        engine.append(rows, topic=topic, **options)
        frame = engine.batch(subscribe=topic, **options)
        return frame.selectExpr("string(key) as key", "string(value) as value")

    assert sorted(map(tuple, parity.same(scenario).collect())) == EXPECTED


# --- protocols and mechanisms --------------------------------------------------------------------
@pytest.mark.parity("security: SSL", "security: host name verification")
def test_ssl(parity: Parity, secured: Listeners, tmp_path: Path) -> None:
    _copied(parity, secured.options("TLS"), tmp_path)


@pytest.mark.parity("security: SASL_PLAINTEXT")
def test_sasl_plaintext(parity: Parity, secured: Listeners, tmp_path: Path) -> None:
    _copied(parity, secured.options("PASSWORDS", "SCRAM-SHA-512"), tmp_path)


@pytest.mark.parity("security: SASL_SSL")
def test_sasl_ssl(parity: Parity, secured: Listeners, tmp_path: Path) -> None:
    _copied(parity, secured.options("SECURED", "SCRAM-SHA-512"), tmp_path)


@pytest.mark.parity("security: PLAIN", "security: jaas: PlainLoginModule")
def test_plain(parity: Parity, secured: Listeners) -> None:
    _works(parity, secured.options("SECURED", "PLAIN"))


@pytest.mark.parity("security: SCRAM-SHA-256", "security: jaas: ScramLoginModule")
def test_scram_sha_256(parity: Parity, secured: Listeners) -> None:
    _works(parity, secured.options("SECURED", "SCRAM-SHA-256"))


@pytest.mark.parity("security: SCRAM-SHA-512", "security: jaas: ScramLoginModule")
def test_scram_sha_512(parity: Parity, secured: Listeners) -> None:
    _works(parity, secured.options("SECURED", "SCRAM-SHA-512"))


@pytest.mark.parity("security: jaas: OAuthBearerLoginModule")
def test_oauthbearer(parity: Parity, secured: Listeners) -> None:
    _works(parity, secured.options("SECURED", "OAUTHBEARER"))


@pytest.mark.parity("security: OAUTHBEARER token callback", differs="java-classes")
def test_oauthbearer_with_a_token_of_a_function(parity: Parity, secured: Listeners) -> None:
    options = secured.options("SECURED", "OAUTHBEARER")
    name = "tests.support.security.spark_job:token"
    options["kafka.sasl.login.callback.handler.class"] = name

    def scenario(engine: Engine) -> "DataFrame":
        topic = engine.topics.create()
        engine.append(engine.spark.sql("select 'v' as value"), topic=topic, **options)
        return engine.batch(subscribe=topic, **options).selectExpr("string(value) as value")

    assert [row.value for row in parity.klog_only(scenario).collect()] == ["v"]


@pytest.mark.parity("security: jaas: kafkashaded prefix", differs="shaded-classes")
def test_a_shaded_login_module(parity: Parity, secured: Listeners) -> None:
    config = f'kafkashaded.{PLAIN_MODULE} required username="alice" password="{PASSWORD}";'
    options = secured.options("SECURED", "PLAIN", config)
    topic = parity.topics.create()
    assert parity.klog_only(lambda e: e.batch(subscribe=topic, **options)).count() == 0


# --- stores --------------------------------------------------------------------------------------
@pytest.mark.parity("security: PEM stores")
def test_pem_stores(parity: Parity, secured: Listeners, authority: Authority) -> None:
    client = authority.issue("client")
    # The key has no password: on Java 17 the peer can't read what OpenSSL encrypts.
    text = {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": client.key_pem,
        "kafka.ssl.keystore.certificate.chain": client.chain_pem,
    }
    _works(parity, secured.options("MUTUAL") | text)
    files = secured.options("MUTUAL") | {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(client.pem_file()),
        "kafka.ssl.truststore.location": str(authority.pem_file()),
    }
    del files["kafka.ssl.truststore.certificates"]
    _works(parity, files)


@pytest.mark.parity("security: PKCS12 stores")
def test_pkcs12_stores(parity: Parity, secured: Listeners, authority: Authority) -> None:
    stores = secured.options("MUTUAL") | {
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": str(authority.issue("client").pkcs12_file()),
        "kafka.ssl.keystore.password": STORE_PASSWORD,
        "kafka.ssl.truststore.type": "PKCS12",
        "kafka.ssl.truststore.location": str(authority.pkcs12_file(for_java=True)),
        "kafka.ssl.truststore.password": STORE_PASSWORD,
    }
    del stores["kafka.ssl.truststore.certificates"]
    _works(parity, stores)


# --- what fails ----------------------------------------------------------------------------------
def _fails(parity: Parity, options: Mapping[str, str], line: str) -> None:
    """A batch is refused, as the peer's is; klog says so in one line, without a traceback."""
    topic = parity.topics.create()
    text = parity.same_failure(lambda e: e.batch(subscribe=topic, **options), line)
    assert "Traceback" not in text
    for secret in (WRONG, PASSWORD, KEY_PASSWORD):
        assert secret not in text


@pytest.mark.parity("security: PLAIN", "security: SCRAM-SHA-256", "security: SCRAM-SHA-512")
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password(parity: Parity, secured: Listeners, mechanism: str) -> None:
    options = secured.options("SECURED", mechanism, jaas(mechanism, password=WRONG))
    front = secured.fronts.get("SECURED")
    before = front.connections if front else 0
    line = f"{secured.addresses['SECURED']} refused SASL {mechanism} for user 'alice': Authenticati"
    _fails(parity, options, line)
    # klog does not retry the login, because a broker would lock the user out.
    assert front is None or front.connections - before == 1


@pytest.mark.parity("security: PLAIN")
def test_a_wrong_password_of_a_stream_and_of_sinks(
    parity: Parity, secured: Listeners, tmp_path: Path
) -> None:
    options = secured.options("SECURED", "PLAIN", jaas("PLAIN", password=WRONG))
    topic = parity.topics.create()

    def stream(engine: Engine) -> "DataFrame":
        return engine.drain(engine.stream(subscribe=topic, **options), tmp_path)

    def sink(engine: Engine) -> "DataFrame":
        rows = engine.spark.sql("select 'v' as value")
        engine.append(rows, topic=topic, **options)
        return rows

    line = (
        f"{secured.addresses['SECURED']} refused SASL PLAIN for user 'alice': Authentication "
        "failed: Invalid username or password; check user and password in sasl.jaas.config"
    )
    for scenario in (stream, sink):
        assert WRONG not in parity.same_failure(scenario, line)


@pytest.mark.parity("security: host name verification")
def test_a_certificate_for_another_name(parity: Parity, secured: Listeners) -> None:
    options = secured.options("ELSEWHERE")
    line = (
        f"the certificate of {secured.addresses['ELSEWHERE']} is not for 'localhost': use a name "
        "that it has in kafka.bootstrap.servers and in the brokers' advertised.listeners, or turn "
        'the check off with kafka.ssl.endpoint.identification.algorithm=""'
    )
    _fails(parity, options, line)
    _works(parity, options | {"kafka.ssl.endpoint.identification.algorithm": ""})


@pytest.mark.parity("security: SSL")
def test_a_certificate_that_has_expired(parity: Parity, secured: Listeners) -> None:
    line = (
        f"a certificate that {secured.addresses['EXPIRED']} shows has expired: renew it, or check "
        "this machine's clock"
    )
    _fails(parity, secured.options("EXPIRED"), line)


@pytest.mark.parity("security: SSL")
def test_a_certificate_that_is_not_trusted(
    parity: Parity, secured: Listeners, tmp_path: Path
) -> None:
    options = secured.options("TLS")
    options["kafka.ssl.truststore.certificates"] = Authority(tmp_path, "other").pem
    address = secured.addresses["TLS"]
    _fails(parity, options, f"the certificate of {address} is not trusted (")


@pytest.mark.parity("security: GSSAPI", differs="kerberos")
@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM"])
def test_what_is_not_supported_is_refused_at_load(
    spark: "SparkSession", secured: Listeners, mechanism: str
) -> None:
    options = secured.options("SECURED", mechanism, jaas("PLAIN"))
    with pytest.raises(Exception, match=r"kafka\.sasl\.mechanism") as caught:
        spark.read.format("klog").options(**options, subscribe="t").load()
    assert "Traceback" not in str(caught.value)


# --- secrets -------------------------------------------------------------------------------------
@pytest.mark.parity("security: secrets stay secret")
def test_no_plan_log_error_event_or_checkpoint_has_a_secret(
    secured: Listeners, authority: Authority, topics: Topics, tmp_path: Path
) -> None:
    client = authority.issue("client")
    key = client.encrypted_key_pem
    given = {
        "options": secured.options("SECURED", "SCRAM-SHA-512")
        | {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.key": key,
            "kafka.ssl.keystore.certificate.chain": client.chain_pem,
            "kafka.ssl.key.password": KEY_PASSWORD,
        },
        "topic": topics.create(2),
        "copy": topics.create(2),
        "wrong": jaas("SCRAM-SHA-512", password=WRONG),
    }
    output = tmp_path / "output.txt"
    with output.open("wb") as file, ready_python.forked_processes():
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.security.spark_job", str(tmp_path)],
            input=json.dumps(given).encode(),
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            timeout=280,
            check=False,
        )
    text = output.read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, text[-4_000:]
    for line in ("read 0", "streamed {", "malformed failed", "source failed", "sink failed"):
        assert line in text
    assert text.count("refused SASL SCRAM-SHA-512 for user 'alice'") >= 3
    secrets = [PASSWORD, WRONG, KEY_PASSWORD, key.splitlines()[2], "ScramLoginModule required"]
    searched = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert f"`{REDACTED}`" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    places = {path.relative_to(tmp_path).parts[0] for path in searched}
    assert {"output.txt", "events", "checkpoint"} <= places
    assert any(b"kafka.ssl.keystore.key=*****" in path.read_bytes() for path in searched)
    leaks = [
        (str(path.relative_to(tmp_path)), secret)
        for path in searched
        for content in (path.read_bytes(),)
        for secret in secrets
        if secret.encode() in content
    ]
    assert leaks == []
