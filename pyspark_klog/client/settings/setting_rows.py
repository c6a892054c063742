"""Every setting of Kafka's clients as a row: its type, default and bounds, or why it has no effect.

The names are those of Kafka 4.3's producer, consumer and admin clients. `client_settings.py` reads
the rows.
"""

from collections.abc import Iterator

from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.setting_types import INT_MAX as INT_MAX
from pyspark_klog.security.setting_types import LONG_MAX as LONG_MAX
from pyspark_klog.security.setting_types import ClientSetting as ClientSetting
from pyspark_klog.security.setting_types import Effect as Effect
from pyspark_klog.security.setting_types import Value as Value


def _number(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX) -> ClientSetting:
    return ClientSetting(name, int, default, doc, low, high)


CONNECTIONS: tuple[ClientSetting, ...] = (
    ClientSetting("bootstrap.servers", str, None, "addresses (host:port,...) to begin with"),
    ClientSetting(
        "client.id", str, "pyspark-klog", "the name that brokers log and count quotas by"
    ),
    _number("request.timeout.ms", 30_000, "longest wait for one reply", 1),
    _number("default.api.timeout.ms", 60_000, "longest time of one operation, retries included"),
    _number("retry.backoff.ms", 100, "wait before the first retry"),
    _number("retry.backoff.max.ms", 1_000, "longest wait before a retry"),
    _number("reconnect.backoff.ms", 50, "wait before the first new attempt to connect"),
    _number("reconnect.backoff.max.ms", 1_000, "longest wait before an attempt to connect"),
    _number("socket.connection.setup.timeout.ms", 10_000, "longest wait for a connection", 1),
    _number(
        "connections.max.idle.ms",
        540_000,
        "idle time after which a connection is closed",
        -1,
        LONG_MAX,
    ),
    _number("metadata.max.age.ms", 300_000, "metadata is fetched again after this time"),
    _number("receive.buffer.bytes", -1, "SO_RCVBUF; -1 leaves it to the system", -1),
    _number("send.buffer.bytes", -1, "SO_SNDBUF; -1 leaves it to the system", -1),
)

READING: tuple[ClientSetting, ...] = (
    ClientSetting(
        "isolation.level",
        str,
        "read_uncommitted",
        "whether records of open and aborted transactions are read",
        choices=("read_uncommitted", "read_committed"),
    ),
    _number("fetch.min.bytes", 0, "bytes for which a broker delays a fetch (Kafka: 1)"),
    _number("fetch.max.wait.ms", 500, "longest such delay"),
    _number("fetch.max.bytes", 52_428_800, "bytes of one reply to a fetch", 1),
    _number(
        *("max.partition.fetch.bytes", 4_194_304),
        *("bytes of one partition in a reply (Kafka: 1048576)", 1),
    ),
    ClientSetting(
        "client.rack",
        str,
        "",
        "the reader's rack: the broker may name a replica there to read from",
    ),
    ClientSetting("check.crcs", bool, True, "whether the checksum of each batch is checked"),
    ClientSetting(
        "allow.auto.create.topics", bool, True, "whether a metadata request may create a topic"
    ),
)

WRITING: tuple[ClientSetting, ...] = (
    ClientSetting(
        *("acks", str, "all"),
        "replicas that must have a record: all in sync (also -1), the leader (1), or none (0)",
        choices=("all", "-1", "0", "1"),
    ),
    ClientSetting("enable.idempotence", bool, True, "each record once, in order, through retries"),
    _number("batch.size", 1_000_000, "bytes of a batch before compression (Kafka: 16384)"),
    _number("buffer.memory", 33_554_432, "bytes that may wait for acknowledgement", 1, LONG_MAX),
    _number(
        "max.block.ms",
        60_000,
        "longest wait for a topic that does not exist yet or has no leader",
        0,
        LONG_MAX,
    ),
    _number(
        "max.request.size",
        1_048_576,
        "most bytes of one batch, and so of one record; the broker has its own limit",
    ),
    _number("max.in.flight.requests.per.connection", 5, "requests without a reply yet", 1),
    _number("delivery.timeout.ms", 120_000, "longest time until records are acknowledged"),
    _number("retries", INT_MAX, "attempts after the first"),
    _number(
        *("transaction.timeout.ms", 900_000),
        "longest time of a transaction of exactlyOnce; the broker has a limit, too (Kafka: 60000)",
        1,
    ),
    ClientSetting(
        "partitioner.class", str, None, "module:callable, or one of Java's built-in ones"
    ),
    ClientSetting(
        "partitioner.ignore.keys", bool, False, "whether the partition does not depend on the key"
    ),
    ClientSetting(
        "compression.type",
        str,
        "none",
        "how batches are compressed",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    _number("compression.gzip.level", -1, "the level for gzip, not 0; -1 is the default", -1, 9),
    _number("compression.lz4.level", 9, "the level for lz4", 1, 17),
    _number("compression.zstd.level", 3, "the level for zstd", -131_072, 22),
)

APPLIED: tuple[ClientSetting, ...] = (*CONNECTIONS, *READING, *WRITING)

_NO_GROUP = "klog reads given offsets: it joins no group"
_JVM = "the setting belongs to the JVM"
_BATCHES = "klog writes Spark's Arrow batches at once, without lingering"
_BY_SPARK = "Spark converts columns"


def _without(reason: str, *names: str) -> Iterator[ClientSetting]:
    for name in names:
        yield ClientSetting(name, str, None, effect=Effect.NONE, without=reason)


def _later(instead: str, *names: str) -> Iterator[ClientSetting]:
    for name in names:
        yield ClientSetting(name, str, None, effect=Effect.LATER, without=instead)


WITHOUT_EFFECT: tuple[ClientSetting, ...] = (
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
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
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
    ),
    *_without(_BY_SPARK, "key.serializer", "value.serializer", "key.deserializer"),
    *_without(_BY_SPARK, "value.deserializer"),
    *_without("the sink ends its transactions itself", "transaction.two.phase.commit.enable"),
    *_without("klog connects to brokers, not to controllers", "bootstrap.controllers"),
    *_without("all addresses of a name are always tried", "client.dns.lookup"),
    *_without("unused topics cost nothing", "metadata.max.idle.ms"),
    *_without(
        "klog uses the bootstrap servers again when no known broker answers",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
    ),
    *_without(
        "socket.connection.setup.timeout.ms is used for every attempt",
        "socket.connection.setup.timeout.max.ms",
    ),
)

LATER: tuple[ClientSetting, ...] = (
    *_later("leave it out, and give the id to TransactionalProducer", "transactional.id"),
)

SETTINGS: dict[str, ClientSetting] = {
    row.name: row for row in (*APPLIED, *SECURITY, *WITHOUT_EFFECT, *LATER)
}
