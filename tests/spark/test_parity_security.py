"""Secured jobs in Spark: written as for `format("kafka")`, over TLS and SASL; secrets stay so."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin import Admin, NewTopic
from pyspark_klog.client.blocking import BlockingClient
from tests.support.security_certs import KEY_PASSWORD, Authority
from tests.support.security_job import REDACTED
from tests.support.security_kafka import MECHANISMS, PASSWORD, PLAIN_MODULE, USER, jaas
from tests.support.security_server import PlayedBroker, server_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
WRONG = "wr0ng-passw0rd"


class Secured:
    """A klog broker behind TLS and SASL, and its topics."""

    def __init__(self, front: PlayedBroker, authority: Authority) -> None:
        self.front = front
        self.authority = authority

    def topic(self, name: str) -> str:
        """A new topic, made over TLS and SASL as everything is."""
        settings = {k.removeprefix("kafka."): v for k, v in self.options("PLAIN").items()}
        with BlockingClient(settings) as client:
            topics = [NewTopic(name, 2, 1, {"retention.ms": "-1"})]
            Admin(client=client).create_topics(topics)
        return name

    def options(self, mechanism: str = "SCRAM-SHA-512", config: str = "", **more: str) -> Any:
        """Options as JVM users write them."""
        client = self.authority.issue("client")
        named = {name.replace("__", "."): value for name, value in more.items()}
        return {
            "kafka.bootstrap.servers": self.front.address,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": config or jaas(mechanism),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": self.authority.pem,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.key": client.encrypted_key_pem,
            "kafka.ssl.keystore.certificate.chain": client.chain_pem,
            "kafka.ssl.key.password": KEY_PASSWORD,
            **named,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    context = server_context(authority.broker().pem_file(), clients_of=authority.pem_file())
    with PlayedBroker(tls=context, mechanisms=MECHANISMS, users={USER: PASSWORD}) as front:
        listeners = f"PLAINTEXT://{front.address}"
        with testing.Broker(advertised_listeners=listeners) as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            front.broker = (host, int(port))
            yield Secured(front, authority)


def _round_trip(spark: "SparkSession", options: dict[str, str], topic: str, folder: Path) -> None:
    """Writes by the batch sink, reads by the batch source, copies by a stream to a topic."""
    rows = spark.range(100).selectExpr("string(id) as key", "string(id) as value")
    rows.write.format("klog").options(**options, topic=topic).mode("append").save()
    source = spark.readStream.format("klog").options(
        **options, subscribe=topic, startingOffsets="earliest"
    )
    query = (
        source.load()
        .select("key", "value")
        .writeStream.format("klog")
        .options(**options, topic=topic, checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    frame = spark.read.format("klog").options(**options, subscribe=topic).load()
    counted = frame.groupBy("value").count().where("count = 2").count()
    assert counted == 100


@pytest.mark.parity(
    "security: SASL_SSL", "security: PEM stores", "security: jaas: ScramLoginModule"
)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"])
def test_sources_and_sinks_over_tls_and_sasl(
    spark: "SparkSession", secured: Secured, tmp_path: Path, mechanism: str
) -> None:
    topic = secured.topic(f"round-{mechanism.lower()}")
    _round_trip(spark, secured.options(mechanism), topic, tmp_path)
    assert mechanism in {used for used, _ in secured.front.authentications}


@pytest.mark.parity("security: jaas: PlainLoginModule", "security: jaas: kafkashaded prefix")
def test_a_shaded_login_module(spark: "SparkSession", secured: Secured) -> None:
    topic = secured.topic("shaded")
    config = f'kafkashaded.{PLAIN_MODULE} required username="{USER}" password="{PASSWORD}";'
    options = secured.options("PLAIN", config)
    assert spark.read.format("klog").options(**options, subscribe=topic).load().count() == 0


@pytest.mark.parity("security: PLAIN")
def test_a_wrong_password_is_one_line_in_the_driver(
    spark: "SparkSession", secured: Secured
) -> None:
    topic = secured.topic("refused")
    options = secured.options("PLAIN", jaas("PLAIN", password=WRONG))
    line = (
        f"{secured.front.address} refused SASL PLAIN for user 'alice': Authentication failed: "
        "Invalid username or password; check user and password in sasl.jaas.config"
    )
    before = secured.front.connections
    with pytest.raises(Exception) as caught:
        spark.read.format("klog").options(**options, subscribe=topic).load().count()
    assert line in str(caught.value)
    assert "Traceback" not in str(caught.value)
    # It is not tried again and again: a broker would lock the user out.
    assert secured.front.connections - before == 1
    query = (
        spark.readStream.format("klog")
        .options(**options, subscribe=topic)
        .load()
        .writeStream.format("noop")
        .start()
    )
    with pytest.raises(Exception) as caught:
        query.awaitTermination(120)
    assert line in str(caught.value)
    with pytest.raises(Exception) as caught:
        spark.range(1).selectExpr("string(id) as value").write.format("klog").options(
            **options, topic=topic
        ).mode("append").save()
    assert line in str(caught.value)


@pytest.mark.parity("security: host name verification")
def test_a_certificate_for_another_name_is_one_line_in_the_driver(
    spark: "SparkSession", secured: Secured
) -> None:
    elsewhere = secured.authority.issue("elsewhere", ("elsewhere",)).pem_file()
    with PlayedBroker(tls=server_context(elsewhere)) as broker:
        options = secured.options(kafka__bootstrap__servers=broker.address)
        with pytest.raises(Exception) as caught:
            spark.read.format("klog").options(**options, subscribe="t").load().count()
        assert (
            f"the certificate of {broker.address} is not for 'localhost': use a name that it has "
            "in kafka.bootstrap.servers and in the brokers' advertised.listeners, or turn the "
            'check off with kafka.ssl.endpoint.identification.algorithm=""'
        ) in str(caught.value)
        assert "Traceback" not in str(caught.value)


@pytest.mark.parity("security: GSSAPI", differs="kerberos")
@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM"])
def test_what_is_not_supported_is_refused_at_load(
    spark: "SparkSession", secured: Secured, mechanism: str
) -> None:
    with pytest.raises(Exception, match=r"kafka\.sasl\.mechanism") as caught:
        spark.read.format("klog").options(**secured.options(mechanism), subscribe="t").load()
    assert "Traceback" not in str(caught.value)


@pytest.mark.parity("security: secrets stay secret")
def test_no_plan_log_error_event_or_checkpoint_has_a_secret(
    secured: Secured, tmp_path: Path
) -> None:
    given = {
        "options": secured.options(),
        "topic": secured.topic("searched"),
        "copy": secured.topic("searched-copy"),
        "wrong": jaas("SCRAM-SHA-512", password=WRONG),
    }
    output = tmp_path / "output.txt"
    with output.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.security_job", str(tmp_path)],
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
    key = given["options"]["kafka.ssl.keystore.key"].splitlines()
    secrets = [PASSWORD, WRONG, KEY_PASSWORD, key[2], "ScramLoginModule required"]
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
