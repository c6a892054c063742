"""Option sets as public jobs write them for Spark's own connector: what klog does with each.

The sets are those of notebooks, examples and questions about Databricks, Amazon MSK and EMR,
Confluent Cloud, Event Hubs, Aiven, HDInsight and Cloudera; names and secrets are replaced.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pyspark_klog.errors import KlogError
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.options import check_sink

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_SASL_SSL = {"kafka.security.protocol": "SASL_SSL"}
_PLAIN_LOGIN = {
    **_SASL_SSL,
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f"{_PLAIN} required username='KEY' password='SECRET';",
}
_NO_GROUP = "klog reads given offsets: it joins no group"
_UNKNOWN = "it is no setting of Kafka's clients"


@dataclass(frozen=True)
class Job:
    """One option set: accepted in silence if it has neither ``warned`` nor ``refused``."""

    name: str
    options: Mapping[str, str]
    side: str = "stream"
    warned: Mapping[str, str] = field(default_factory=dict)
    """The reason of the warning about each setting without effect."""
    refused: str | None = None

    def __str__(self) -> str:
        return self.name


JOBS = (
    # Accepted in silence
    Job("quickstart", {"startingOffsets": "earliest"}),
    Job("structured streaming guide: pattern", {"subscribePattern": "topic.*"}),
    Job(
        "Confluent Cloud", {**_PLAIN_LOGIN, "kafka.ssl.endpoint.identification.algorithm": "https"}
    ),
    Job(
        "Databricks: Confluent Cloud, shaded module",
        {
            **_PLAIN_LOGIN,
            "kafka.sasl.jaas.config": f"kafkashaded.{_PLAIN} required username='K' password='S';",
            "mergeSchema": "true",
            "failOnDataLoss": "false",
        },
    ),
    Job(
        "Aiven: PEM texts",
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
            "kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
        },
    ),
    Job(
        "SCRAM behind a truststore, host names unchecked",
        {
            **_SASL_SSL,
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{_SCRAM} required username="U" password="P";',
            "kafka.ssl.endpoint.identification.algorithm": " ",
            "kafka.ssl.truststore.location": "/certs/truststore.p12",
            "kafka.ssl.truststore.password": "changeit",
            "kafka.ssl.truststore.type": "PKCS12",
            "kafkaConsumer.pollTimeoutMs": "5000",
            "maxOffsetsPerTrigger": "3200000",
        },
    ),
    Job(
        "Event Hubs with OAuth of a service principal",
        {
            **_SASL_SSL,
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.oauthbearer."
            'OAuthBearerLoginModule required clientId="I" clientSecret="S" scope="https://h/";',
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
            "kafka.sasl.login.callback.handler.class": "kafkashaded.org.apache.kafka.common."
            "security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        },
    ),
    Job("rate limits", {"minPartitions": "12", "maxOffsetsPerTrigger": "20", "groupIdPrefix": "p"}),
    Job("read committed", {"kafka.isolation.level": "read_committed"}),
    Job("unprefixed settings, which count for nothing", {"max.poll.records": "10000"}),
    Job("unprefixed deserializers", {"key.deserializer": "org.apache.kafka.x.IntegerDeserializer"}),
    Job("mode of another source", {"mode": "PERMISSIVE", "inferSchema": "true"}),
    Job("batch between offsets", {"endingOffsets": "latest"}, side="batch"),
    Job(
        "sink: acks and compression", {"kafka.acks": "-1", "kafka.compression.type": "lz4"}, "sink"
    ),
    Job("sink: large messages", {"kafka.max.request.size": "10485760"}, "sink"),
    Job(
        "sink: timeouts",
        {"kafka.request.timeout.ms": "60000", "kafka.delivery.timeout.ms": "120000"},
        "sink",
    ),
    # Warned of: Kafka's settings that klog does not use
    Job("group of one's own", {"kafka.group.id": "g"}, warned={"kafka.group.id": _NO_GROUP}),
    Job(
        "Databricks: Event Hubs",
        {
            **_PLAIN_LOGIN,
            "kafka.session.timeout.ms": "60000",
            "kafka.request.timeout.ms": "30000",
            "kafka.group.id": "$Default",
        },
        warned={"kafka.session.timeout.ms": _NO_GROUP, "kafka.group.id": _NO_GROUP},
    ),
    Job(
        "consumer tuning",
        {
            "kafka.max.poll.records": "500",
            "kafka.max.poll.interval.ms": "300000",
            "kafka.fetch.min.bytes": "1",
            "kafka.fetch.max.wait.ms": "500",
        },
        warned={"kafka.max.poll.records": _NO_GROUP, "kafka.max.poll.interval.ms": _NO_GROUP},
    ),
    Job(
        "heartbeats and assignor",
        {
            "kafka.heartbeat.interval.ms": "3000",
            "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.Range",
        },
        warned={
            "kafka.heartbeat.interval.ms": _NO_GROUP,
            "kafka.partition.assignment.strategy": _NO_GROUP,
        },
    ),
    Job(
        "Cloudera: Kerberos' service name beside PLAIN",
        {**_PLAIN_LOGIN, "kafka.sasl.kerberos.service.name": "kafka"},
        warned={
            "kafka.sasl.kerberos.service.name": "sasl.mechanism GSSAPI (Kerberos) is not supported"
        },
    ),
    Job(
        "metric reporters",
        {"kafka.metric.reporters": "com.example.Reporter", "kafka.client.dns.lookup": "use_all"},
        warned={
            "kafka.metric.reporters": "the setting belongs to the JVM",
            "kafka.client.dns.lookup": "all addresses of a name are always tried",
        },
    ),
    Job(
        "sink: batches that wait",
        {"kafka.linger.ms": "50", "kafka.batch.size": "65536"},
        "sink",
        {"kafka.linger.ms": "klog writes Spark's Arrow batches at once, without lingering"},
    ),
    Job(
        "serializers on a source",
        {"kafka.key.serializer": "org.apache.kafka.common.serialization.StringSerializer"},
        warned={"kafka.key.serializer": "Spark converts columns"},
    ),
    Job(
        "sink: the consumer's settings of a shared dictionary",
        {
            "kafka.auto.offset.reset": "earliest",
            "kafka.enable.auto.commit": "false",
            "kafka.value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        },
        "sink",
        {
            "kafka.auto.offset.reset": _NO_GROUP,
            "kafka.enable.auto.commit": _NO_GROUP,
            "kafka.value.deserializer": "Spark converts columns",
        },
    ),
    Job(
        "truststore without security.protocol",
        {"kafka.ssl.truststore.location": "./truststore.jks"},
        warned={"kafka.ssl.truststore.location": "kafka.security.protocol is PLAINTEXT"},
    ),
    Job(
        "transactional id of a shared dictionary",
        {"kafka.transactional.id": "job-1"},
        warned={"kafka.transactional.id": "klog does not use it for transactions"},
    ),
    # Warned of: names that Kafka's clients do not have
    Job(
        "schema registry",
        {
            "kafka.schema.registry.url": "http://registry:8081",
            "kafka.basic.auth.credentials.source": "USER_INFO",
        },
        warned=dict.fromkeys(
            ("kafka.schema.registry.url", "kafka.basic.auth.credentials.source"),
            f"{_UNKNOWN}; it belongs to the serializers of a schema registry, and Spark's columns "
            "are bytes: decode them in the query, as with from_avro",
        ),
    ),
    Job(
        "MSK: offsets committed by an offset committer",
        {"kafka.consumer.commit.groupid": "g", "kafkaConsumer.pollTimeoutMs": "5000"},
        warned={
            "kafka.consumer.commit.groupid": f"{_UNKNOWN}; option commitGroupId commits a stream's "
            "position to a consumer group"
        },
    ),
    Job(
        "poll timeout",
        {"kafka.poll.timeout.ms": "1000"},
        warned={
            "kafka.poll.timeout.ms": f"{_UNKNOWN}; option kafkaConsumer.pollTimeoutMs bounds the "
            "wait for records"
        },
    ),
    Job(
        "consumer.poll.timeout.ms",
        {"kafka.consumer.poll.timeout.ms": "512"},
        warned={
            "kafka.consumer.poll.timeout.ms": f"{_UNKNOWN}; option kafkaConsumer.pollTimeoutMs "
            "bounds the wait for records"
        },
    ),
    Job(
        "a group with consumer. before it",
        {"kafka.consumer.group.id": "invoice-processor-prod"},
        warned={
            "kafka.consumer.group.id": f"{_UNKNOWN}; kafka.group.id has no effect either: "
            f"{_NO_GROUP}"
        },
    ),
    Job(
        "consumer. before everything",
        {
            "kafka.consumer.auto.offset.reset": "latest",
            "kafka.consumer.enable.auto.commit": "false",
            "kafka.consumer.fetch.min.bytes": "50000",
        },
        warned={
            "kafka.consumer.auto.offset.reset": f"{_UNKNOWN}; use startingOffsets",
            "kafka.consumer.enable.auto.commit": f"{_UNKNOWN}; progress is kept in Spark's "
            "checkpoint",
            "kafka.consumer.fetch.min.bytes": f"{_UNKNOWN}; did you mean kafka.fetch.min.bytes?",
        },
    ),
    Job(
        "consumer cache",
        {"kafka.consumer.cache.enabled": "false", "kafka.consumer.timeout.ms": "10000"},
        warned={
            "kafka.consumer.cache.enabled": _UNKNOWN,
            "kafka.consumer.timeout.ms": f"{_UNKNOWN}; it belongs to Kafka's consumer before 0.9",
        },
    ),
    Job(
        "broker list of old clients",
        {"kafka.metadata.broker.list": "broker:9092"},
        "sink",
        {
            "kafka.metadata.broker.list": f"{_UNKNOWN}; kafka.bootstrap.servers, which is "
            "given, too, is used"
        },
    ),
    Job(
        "old names of a consumer",
        {
            "kafka.auto.commit.enable": "false",
            "kafka.fetch.message.max.bytes": "10485760",
            "kafka.zookeeper.connect": "zk:2181",
        },
        warned={
            "kafka.auto.commit.enable": f"{_UNKNOWN}; progress is kept in Spark's checkpoint",
            "kafka.fetch.message.max.bytes": f"{_UNKNOWN}; did you mean "
            "kafka.max.partition.fetch.bytes?",
            "kafka.zookeeper.connect": f"{_UNKNOWN}; it belongs to brokers and topics, and a "
            "client does not have it",
        },
    ),
    Job(
        "old names of a producer",
        {"kafka.request.required.acks": "1", "kafka.compression.codec": "snappy"},
        "sink",
        {
            "kafka.request.required.acks": f"{_UNKNOWN}; did you mean kafka.acks?",
            "kafka.compression.codec": f"{_UNKNOWN}; did you mean kafka.compression.type?",
        },
    ),
    Job(
        "a topic's settings",
        {"kafka.num.partitions": "3", "kafka.replication.factor": "1"},
        "sink",
        dict.fromkeys(
            ("kafka.num.partitions", "kafka.replication.factor"),
            f"{_UNKNOWN}; it belongs to brokers and topics, and a client does not have it",
        ),
    ),
    Job(
        "brokers' settings of TLS",
        {
            **_PLAIN_LOGIN,
            "kafka.ssl.client.auth": "required",
            "kafka.security.inter.broker.protocol": "SASL_SSL",
        },
        warned=dict.fromkeys(
            ("kafka.ssl.client.auth", "kafka.security.inter.broker.protocol"),
            f"{_UNKNOWN}; it belongs to brokers and topics, and a client does not have it",
        ),
    ),
    Job(
        "librdkafka's settings",
        {"kafka.api.version.request": "true", "kafka.socket.timeout.ms": "60000"},
        warned={
            "kafka.api.version.request": f"{_UNKNOWN}; it belongs to librdkafka",
            "kafka.socket.timeout.ms": f"{_UNKNOWN}; did you mean kafka.request.timeout.ms?",
        },
    ),
    Job(
        "librdkafka's login beside Java's",
        {
            **_PLAIN_LOGIN,
            "kafka.sasl.mechanisms": "PLAIN",
            "kafka.sasl.username": "KEY",
            "kafka.sasl.password": "SECRET",
        },
        warned={
            "kafka.sasl.mechanisms": f"{_UNKNOWN}; kafka.sasl.mechanism, which is given, too, "
            "is used",
            "kafka.sasl.username": f"{_UNKNOWN}; it belongs to librdkafka",
            "kafka.sasl.password": f"{_UNKNOWN}; it belongs to librdkafka",
        },
    ),
    Job(
        "Spark's options with kafka. before them",
        {"kafka.startingOffsets": "earliest", "kafka.failOnDataLoss": "false"},
        warned={
            "kafka.startingoffsets": f"{_UNKNOWN}; option startingOffsets is written without "
            "kafka. before it",
            "kafka.failondataloss": f"{_UNKNOWN}; option failOnDataLoss is written without kafka. "
            "before it",
        },
    ),
    Job(
        "misspelt",
        {"kafka.fetch.max.byte": "1", "kafka.retry.backoff": "500", "kafka.client_id": "x"},
        warned={
            "kafka.fetch.max.byte": f"{_UNKNOWN}; did you mean kafka.fetch.max.bytes?",
            "kafka.retry.backoff": f"{_UNKNOWN}; did you mean kafka.retry.backoff.ms?",
            "kafka.client_id": f"{_UNKNOWN}; did you mean kafka.client.id?",
        },
    ),
    Job(
        "a cloud's region",
        {"kafka.aws.region": "eu-west-1"},
        warned={"kafka.aws.region": _UNKNOWN},
    ),
    # Refused
    Job(
        "HDInsight: Kerberos",
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "GSSAPI",
            "kafka.sasl.kerberos.service.name": "kafka",
        },
        refused="kafka.sasl.mechanism is GSSAPI (Kerberos), which is not supported",
    ),
    Job(
        "Cloudera: Kerberos by default",
        {**_SASL_SSL, "kafka.sasl.kerberos.service.name": "kafka"},
        refused="kafka.sasl.mechanism is missing, and Kafka's default, GSSAPI, is not supported",
    ),
    Job(
        "Kerberos of librdkafka",
        {"kafka.sasl.kerberos.keytab": "/k.keytab", "kafka.sasl.kerberos.principal": "u@R"},
        refused="kafka.sasl.kerberos.keytab is for GSSAPI (Kerberos), which is not supported, and "
        "no other login is given",
    ),
    Job(
        "MSK with IAM",
        {
            **_SASL_SSL,
            "kafka.sasl.mechanism": "AWS_MSK_IAM",
            "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam."
            "IAMClientCallbackHandler",
        },
        refused="kafka.sasl.mechanism: AWS_MSK_IAM is not built in, and need not be",
    ),
    Job(
        "user and password as librdkafka takes them",
        {"kafka.sasl.username": "KEY", "kafka.sasl.password": "SECRET"},
        refused="kafka.sasl.username is a setting of librdkafka, and no login would be made with "
        "it: set kafka.security.protocol, kafka.sasl.mechanism and kafka.sasl.jaas.config",
    ),
    Job(
        "mechanism as librdkafka takes it",
        {**_SASL_SSL, "kafka.sasl.mechanisms": "PLAIN"},
        refused="kafka.sasl.mechanisms is no setting of Kafka's clients; did you mean "
        "kafka.sasl.mechanism? Without it kafka.sasl.mechanism would stay unset",
    ),
    Job(
        "authorities as librdkafka takes them",
        {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/ca.pem"},
        refused="kafka.ssl.ca.location is no setting of Kafka's clients; did you mean "
        "kafka.ssl.truststore.location? Without it kafka.ssl.truststore.location would stay unset",
    ),
    Job(
        "misspelt security.protocol",
        {"kafka.security.protocols": "SASL_SSL"},
        refused="did you mean kafka.security.protocol? Without it kafka.security.protocol would "
        "stay PLAINTEXT",
    ),
    Job(
        "misspelt isolation.level",
        {"kafka.consumer.isolation.level": "read_committed"},
        refused="did you mean kafka.isolation.level? Without it kafka.isolation.level would stay "
        "read_uncommitted",
    ),
    Job(
        "auto.offset.reset on a source",
        {"kafka.auto.offset.reset": "earliest"},
        refused="option kafka.auto.offset.reset is not supported: use startingOffsets",
    ),
    Job(
        "deserializers on a source",
        {"kafka.key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"},
        side="batch",
        refused="option kafka.key.deserializer is not supported: keys are binary: cast the column",
    ),
    Job(
        "enable.auto.commit on a source",
        {"kafka.enable.auto.commit": "false"},
        refused="option kafka.enable.auto.commit is not supported: progress is kept in Spark's",
    ),
    Job(
        "serializers on a sink",
        {"kafka.value.serializer": "org.apache.kafka.common.serialization.StringSerializer"},
        side="sink",
        refused="option kafka.value.serializer is not supported: values are string or binary",
    ),
    Job(
        "interceptors on a sink",
        {"kafka.interceptor.classes": "com.example.Interceptor"},
        side="sink",
        refused="option kafka.interceptor.classes is not supported: interceptors are Java classes",
    ),
    Job(
        "transactional id on a sink",
        {"kafka.transactional.id": "job-1"},
        side="sink",
        refused="option kafka.transactional.id is not supported: use exactlyOnce=true",
    ),
)


def _checked(job: Job) -> Options:
    given = {"kafka.bootstrap.servers": "broker:9092", **job.options}
    if job.side == "sink":
        given["topic"] = "t"
    elif "subscribePattern" not in given:
        given["subscribe"] = "t"
    options = read_options(given)
    if job.side == "sink":
        check_sink(options, given)
    elif job.side == "batch":
        options.for_batch().check_batch()
    else:
        options.for_stream().check_stream()
    return options


def test_there_are_as_many_option_sets_as_were_tried() -> None:
    assert len(JOBS) >= 45
    assert len({job.name for job in JOBS}) == len(JOBS)


@pytest.mark.parametrize("job", [job for job in JOBS if job.refused is None], ids=str)
def test_a_public_job_runs_and_each_ignored_setting_is_warned_of(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    options = _checked(job)
    with caplog.at_level(logging.WARNING):
        options.client.warn_of_ignored(once_in_process=False)
    assert sorted(caplog.messages) == sorted(
        f"setting={name} is accepted without effect: {reason}"
        for name, reason in job.warned.items()
    )
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("job", [job for job in JOBS if job.refused is not None], ids=str)
def test_a_setting_whose_loss_would_change_security_or_meaning_is_refused(job: Job) -> None:
    with pytest.raises(KlogError) as caught:
        _checked(job)
    assert str(job.refused) in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)
