"""The settings of producers."""

from pyspark_klog.kafka._setting_types import (
    INT_MAX,
    LONG_MAX,
    PRODUCER,
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

PARTITIONERS = (
    *("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a"),
    "random",
)
ALL_REPLICAS = -1
"""The value of acks=all."""


def _number(
    name: str,
    default: int | None,
    doc: str,
    low: int = 0,
    high: int = INT_MAX,
    aliases: tuple[str, ...] = (),
) -> Row:
    return number(name, default, doc, low, high, aliases, clients=PRODUCER)


def _flag(name: str, default: bool, doc: str) -> Row:
    return flag(name, default, doc, clients=PRODUCER)


_ACTING: tuple[Row, ...] = (
    _number(
        *("acks", ALL_REPLICAS),
        "replicas that must have a record: all in sync (all, -1), the leader (1), or none (0)",
        *(-1, 1),
        aliases=("request.required.acks",),
    )._replace(client="acks"),
    _flag("enable.idempotence", True, "each record once, in order, through retries")._replace(
        client="enable.idempotence"
    ),
    text("transactional.id", None, "the producer's name in transactions", clients=PRODUCER),
    _number("transaction.timeout.ms", 60_000, "longest time of a transaction", 1_000)._replace(
        client="transaction.timeout.ms"
    ),
    Row(
        *("linger.ms", Kind.FRACTION, 5.0, "how long a batch waits for more records"),
        *(("queue.buffering.max.ms",), 0, 900_000),
        clients=PRODUCER,
    ),
    _number(
        *("delivery.timeout.ms", 300_000, "longest time until a record is acknowledged; 0: no end"),
        *(0, INT_MAX),
        aliases=("message.timeout.ms",),
    )._replace(client="delivery.timeout.ms"),
    _number(
        *("retries", INT_MAX, "attempts after the first", 0, INT_MAX),
        aliases=("message.send.max.retries",),
    )._replace(client="retries"),
    _number(
        *("max.in.flight.requests.per.connection", 5, "requests without a response yet", 1),
        1_000_000,
        aliases=("max.in.flight",),
    )._replace(client="max.in.flight.requests.per.connection"),
    _number("batch.size", 1_000_000, "bytes of a batch before compression", 1)._replace(
        client="batch.size"
    ),
    _number("batch.num.messages", 10_000, "records of a batch", 1, 1_000_000),
    _number(
        *("max.request.size", 1_000_000, "most bytes of one batch, and so of one record", 1_000),
        10**9,
        aliases=("message.max.bytes",),
    )._replace(client="max.request.size", clients=("producer", "consumer")),
    _number(
        *("queue.buffering.max.messages", 100_000),
        "records that may wait for acknowledgement; 0: no limit",
    ),
    _number(
        *("queue.buffering.max.kbytes", 1_048_576),
        *("KiB that may wait for acknowledgement", 1),
    ),
    _number(
        *("buffer.memory", None),
        "bytes that may wait for acknowledgement; the smaller of this limit and"
        " queue.buffering.max.kbytes counts",
        *(1, LONG_MAX),
    )._replace(client="buffer.memory"),
    _number(
        *("max.block.ms", None),
        "how long produce waits for space in the buffer; by default produce raises BufferError"
        " at once",
        *(0, LONG_MAX),
    )._replace(client="max.block.ms"),
    Row(
        *("partitioner", Kind.ANY, "murmur2_random"),
        "a name, a callable of topic, key, value and partition count, a Java class, or, for Arrow"
        " batches, module:callable",
        ("partitioner.class",),
        clients=PRODUCER,
    ),
    _flag("partitioner.ignore.keys", False, "whether keys do not decide on partitions")._replace(
        client="partitioner.ignore.keys"
    ),
    _flag(
        *("partitioner.adaptive.partitioning.enable", True),
        "whether a slow partition gets fewer records without a key",
    ),
    _number(
        *("partitioner.availability.timeout.ms", 0),
        *("how long a broker may not answer before others get its records; 0: no limit", 0),
        LONG_MAX,
    ),
    text(
        *("compression.type", "none", "how batches are compressed"),
        aliases=("compression.codec",),
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        clients=PRODUCER,
        client="compression.type",
    ),
    _number("compression.level", -1, "the level of any of them; -1 is the default", -1, 12),
    _number("compression.gzip.level", -1, "the level for gzip; -1 is the default", -1, 9)._replace(
        client="compression.gzip.level"
    ),
    _number("compression.lz4.level", 9, "the level for lz4", 1, 17)._replace(
        client="compression.lz4.level"
    ),
    _number("compression.zstd.level", 3, "the level for zstd", -131_072, 22)._replace(
        client="compression.zstd.level"
    ),
    callback("on_delivery", "the delivery report of records without a callback", PRODUCER),
    _flag("delivery.report.only.error", False, "whether only failed records have a report"),
)

_WITHOUT_EFFECT: tuple[Row, ...] = (
    *ignored(
        "a partition stays for batch.size bytes of records without a key, however long they take",
        _number("sticky.partitioning.linger.ms", 10, "", 0, 900_000),
    ),
    *ignored(
        "records are sent in their order",
        text("queuing.strategy", "fifo", "", choices=("fifo", "lifo"), clients=PRODUCER),
    ),
    *ignored("reports always have the offset", _flag("produce.offset.report", False, "")),
    *ignored(
        "max.in.flight.requests.per.connection limits the requests",
        _number("queue.buffering.backpressure.threshold", 1, "", 1, 1_000_000),
    ),
    *ignored_texts(
        "SerializingProducer has serializers",
        "key.serializer",
        "value.serializer",
        clients=PRODUCER,
    ),
    *refused(
        "the client does not give this guarantee", _flag("enable.gapless.guarantee", False, "")
    ),
    *refused(
        "transactions end in one phase", _flag("transaction.two.phase.commit.enable", False, "")
    ),
)

PRODUCING: tuple[Row, ...] = (*_ACTING, *_WITHOUT_EFFECT)
