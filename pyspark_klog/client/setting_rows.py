"""Every setting of Kafka's clients as a row: what klog does with it, its type, default and bounds.

The names are those of Kafka 4.3's producer, consumer and admin clients. `settings.py` reads them.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = str | int | bool | None


class Effect(Enum):
    """What klog does with a setting of Kafka's."""

    APPLIED = "applied"
    NONE = "accepted, without effect"
    LATER = "not supported yet"


class Setting(NamedTuple):
    """One setting. ``low`` and ``high`` are inclusive bounds of a number."""

    name: str
    kind: type
    default: Value
    doc: str = ""
    low: int = -LONG_MAX - 1
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    effect: Effect = Effect.APPLIED
    without: str = ""
    """Why it has no effect, or what to do until it is supported."""


def _number(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX) -> Setting:
    return Setting(name, int, default, doc, low, high)


APPLIED: tuple[Setting, ...] = (
    Setting("bootstrap.servers", str, None, "addresses (host:port,...) to begin with"),
    Setting("client.id", str, "pyspark-klog", "the name that brokers log and count quotas by"),
    # Connections
    _number("request.timeout.ms", 30_000, "longest wait for one reply", 1),
    _number("default.api.timeout.ms", 60_000, "longest time of one operation, retries included"),
    _number("retry.backoff.ms", 100, "wait before the first retry"),
    _number("retry.backoff.max.ms", 1_000, "longest wait before a retry"),
    _number("reconnect.backoff.ms", 50, "wait before the first new attempt to connect"),
    _number("reconnect.backoff.max.ms", 1_000, "longest wait before an attempt to connect"),
    _number("socket.connection.setup.timeout.ms", 10_000, "longest wait for a connection", 1),
    _number(
        "connections.max.idle.ms", 540_000, "an unused connection is closed then", -1, LONG_MAX
    ),
    _number("metadata.max.age.ms", 300_000, "metadata is fetched anew after this time"),
    _number("receive.buffer.bytes", -1, "SO_RCVBUF; -1 leaves it to the system", -1),
    _number("send.buffer.bytes", -1, "SO_SNDBUF; -1 leaves it to the system", -1),
    # Reading
    Setting(
        "isolation.level",
        str,
        "read_uncommitted",
        "whether records of open and aborted transactions are read",
        choices=("read_uncommitted", "read_committed"),
    ),
    _number("fetch.min.bytes", 0, "a fetch is answered once there is so much (Kafka: 1)"),
    _number("fetch.max.wait.ms", 500, "or after this time"),
    _number("fetch.max.bytes", 52_428_800, "bytes of one reply to a fetch", 1),
    _number("max.partition.fetch.bytes", 1_048_576, "bytes of one partition in a reply", 1),
    Setting("check.crcs", bool, True, "whether the CRC of each batch is checked"),
    Setting("allow.auto.create.topics", bool, True, "whether asking for a topic may create it"),
    # Writing
    Setting("acks", str, "all", "who must have a record", choices=("all", "-1", "0", "1")),
    Setting("enable.idempotence", bool, True, "each record once, in order, through retries"),
    _number("batch.size", 524_288, "bytes of a batch before compression (Kafka: 16384)"),
    _number("buffer.memory", 33_554_432, "bytes that may wait for acknowledgement", 1, LONG_MAX),
    _number("max.block.ms", 60_000, "longest wait for a topic's metadata", 0, LONG_MAX),
    _number("max.request.size", 1_048_576, "bytes of one request, and of one record"),
    _number("max.in.flight.requests.per.connection", 5, "requests without a reply yet", 1),
    _number("delivery.timeout.ms", 120_000, "longest time until records are acknowledged"),
    _number("retries", INT_MAX, "attempts after the first"),
    Setting(
        "compression.type",
        str,
        "none",
        "codec of the batches",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    _number("compression.gzip.level", -1, "1 to 9; -1 is the default level", -1, 9),
    _number("compression.lz4.level", 9, "1 to 17", 1, 17),
    _number("compression.zstd.level", 3, "-131072 to 22", -131_072, 22),
)

_NO_GROUP = "klog reads given offsets: it joins no group"
_JVM = "it belongs to the JVM"
_BATCHES = "batches are made of Spark's Arrow batches at once, nothing lingers"
_PLAINTEXT = "security.protocol is PLAINTEXT"
_BY_SPARK = "Spark converts columns"


def _without(reason: str, *names: str) -> Iterator[Setting]:
    for name in names:
        yield Setting(name, str, None, effect=Effect.NONE, without=reason)


def _later(instead: str, *names: str) -> Iterator[Setting]:
    for name in names:
        yield Setting(name, str, None, effect=Effect.LATER, without=instead)


WITHOUT_EFFECT: tuple[Setting, ...] = (
    *_without(
        _NO_GROUP,
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "auto.commit.interval.ms",
        "enable.auto.commit",
        "auto.offset.reset",
        "exclude.internal.topics",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    ),
    *_without(
        _JVM,
        "auto.include.jmx.reporter",
        "config.providers",
        "enable.metrics.push",
        "interceptor.classes",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "security.providers",
    ),
    *_without(
        _BATCHES,
        "linger.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
    ),
    *_without(_BY_SPARK, "key.serializer", "value.serializer", "key.deserializer"),
    *_without(_BY_SPARK, "value.deserializer"),
    *_without("transactional.id is not set", "transaction.timeout.ms"),
    *_without("transactional.id is not set", "transaction.two.phase.commit.enable"),
    *_without("all addresses of a name are always tried", "client.dns.lookup"),
    *_without("unused topics cost nothing here", "metadata.max.idle.ms"),
    *_without(
        "the bootstrap servers are asked again when no known broker answers",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    *_without(
        "socket.connection.setup.timeout.ms is used for every attempt",
        "socket.connection.setup.timeout.max.ms",
    ),
    *_without(
        _PLAINTEXT,
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.key.password",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    ),
)

LATER: tuple[Setting, ...] = (
    *_later("leave it out: the sink writes at least once", "transactional.id"),
    *_later("leave it out: reads go to the leaders", "client.rack"),
    *_later("use the partition column", "partitioner.class"),
    Setting(
        "security.protocol",
        str,
        "PLAINTEXT",
        "how connections are secured",
        choices=("PLAINTEXT",),
        without="only PLAINTEXT is supported yet: use a PLAINTEXT listener of the broker",
    ),
)

SETTINGS: dict[str, Setting] = {row.name: row for row in (*APPLIED, *WITHOUT_EFFECT, *LATER)}
