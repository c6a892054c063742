"""The settings of consumers."""

from pyspark_klog.kafka._setting_types import (
    CONSUMER,
    INT_MAX,
    Kind,
    Row,
    callback,
    flag,
    ignored,
    ignored_texts,
    number,
    refused,
    text,
)

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
COOPERATIVE = "cooperative-sticky"


def _number(
    name: str,
    default: int | None,
    doc: str,
    low: int = 0,
    high: int = INT_MAX,
    aliases: tuple[str, ...] = (),
) -> Row:
    return number(name, default, doc, low, high, aliases, clients=CONSUMER)


def _flag(name: str, default: bool | None, doc: str, aliases: tuple[str, ...] = ()) -> Row:
    return flag(name, default, doc, aliases, clients=CONSUMER)


def _text(name: str, default: str | None, doc: str, *choices: str) -> Row:
    return text(name, default, doc, choices=choices, clients=CONSUMER)


_ACTING: tuple[Row, ...] = (
    _text("group.id", None, "the consumer's group"),
    _text("group.instance.id", None, "the name of a static member"),
    Row(
        *("partition.assignment.strategy", Kind.ANY, ("range", "roundrobin")),
        "assignors, the preferred one first: names, Java's class names, or objects",
        clients=CONSUMER,
    ),
    _number("session.timeout.ms", 45_000, "silence after which a member is removed", 1, 3_600_000),
    _number("heartbeat.interval.ms", 3_000, "time between heartbeats", 1, 3_600_000),
    _number("max.poll.interval.ms", 300_000, "longest time between polls", 1, 86_400_000),
    _flag(
        *("enable.auto.commit", True, "whether offsets are committed from time to time"),
        aliases=("auto.commit.enable",),
    ),
    _number("auto.commit.interval.ms", 5_000, "time between such commits", 0, 86_400_000),
    _flag(
        *("enable.auto.offset.store", True),
        "whether the offset of a polled record is stored for the next commit",
    ),
    Row(
        *("auto.offset.reset", Kind.TEXT, "latest"),
        "where to begin without a committed offset: earliest, latest, error, by_duration:PT1H",
        clients=CONSUMER,
    ),
    _text(
        *("isolation.level", "read_committed"),
        "whether records of open and aborted transactions are read",
        *("read_uncommitted", "read_committed"),
    )._replace(client="isolation.level"),
    _flag("enable.partition.eof", False, "whether the end of a partition is reported"),
    _number(
        *("fetch.max.wait.ms", 500, "how long a broker delays a fetch for fetch.min.bytes"),
        *(0, 300_000),
        aliases=("fetch.wait.max.ms",),
    )._replace(client="fetch.max.wait.ms"),
    _number(
        *("fetch.min.bytes", 1, "bytes for which a broker delays a fetch", 0, 100_000_000)
    )._replace(client="fetch.min.bytes"),
    _number(
        *("fetch.max.bytes", 52_428_800, "bytes of one response to a fetch", 0, 2_147_483_135)
    )._replace(client="fetch.max.bytes"),
    _number(
        *("max.partition.fetch.bytes", 1_048_576, "bytes of one partition in a response", 1),
        10**9,
        aliases=("fetch.message.max.bytes",),
    )._replace(client="max.partition.fetch.bytes"),
    _number(
        *("queued.min.messages", 100_000, "records of a partition that are fetched ahead"),
        *(1, 10_000_000),
    ),
    _number("queued.max.messages.kbytes", 65_536, "KiB that are fetched ahead", 1, 2_097_151),
    text(
        *("client.rack", None, "the consumer's rack: a broker may name a replica there"),
        clients=CONSUMER,
        client="client.rack",
    ),
    _flag("check.crcs", True, "whether the checksum of each batch is checked")._replace(
        client="check.crcs"
    ),
    flag(
        *("allow.auto.create.topics", None),
        "whether a metadata request may create a topic: by default that of a producer may",
        client="allow.auto.create.topics",
    ),
    callback("on_commit", "called with the result of each commit", CONSUMER),
)

_WITHOUT_EFFECT: tuple[Row, ...] = (
    *ignored(
        "num_messages of consume and max_rows of consume_arrow limit the records of one call",
        _number("max.poll.records", 500, "", 1),
    ),
    *ignored(
        "a fetch is sent as soon as there is space for the records",
        _number("fetch.queue.backoff.ms", 1_000, "", 0, 300_000),
    ),
    *ignored("retry.backoff.ms is used", _number("fetch.error.backoff.ms", 500, "", 0, 300_000)),
    *ignored(
        "the coordinator is looked up when it does not answer",
        _number("coordinator.query.interval.ms", 600_000, "", 1, 3_600_000),
    ),
    *ignored(
        "offsets are stored by brokers",
        _text("offset.store.method", "broker", "", "none", "file", "broker"),
        _text("offset.store.path", ".", ""),
        _number("offset.store.sync.interval.ms", -1, "", -1, 86_400_000),
    ),
    *ignored(
        "consume has no callback", _number("consume.callback.max.messages", 0, "", 0, 1_000_000)
    ),
    *ignored(
        "only group.protocol=consumer would use it, which the client does not support",
        _text("group.remote.assignor", None, ""),
    ),
    *ignored(
        "consumers have no other type", _text("group.protocol.type", "consumer", "", "consumer")
    ),
    *ignored_texts(
        "there is no consumer of share groups",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        clients=CONSUMER,
    ),
    *ignored_texts(
        "DeserializingConsumer has deserializers",
        "key.deserializer",
        "value.deserializer",
        clients=CONSUMER,
    ),
    *ignored_texts(
        "the setting belongs to Java's consumer",
        "exclude.internal.topics",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        clients=CONSUMER,
    ),
    *refused(
        "the client has only classic groups",
        _text("group.protocol", "classic", "", "classic", "consumer"),
    ),
)

CONSUMING: tuple[Row, ...] = (*_ACTING, *_WITHOUT_EFFECT)
