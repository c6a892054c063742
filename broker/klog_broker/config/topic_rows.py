"""The declarations (rows) of the topics' settings, with Kafka 3.9.1's names, types and bounds.

The default of a topic's setting is the broker's setting `broker_name`. In a row without
`broker_name`, or whose `broker_name` has no effect in klog, the default is `default`.
"""

from klog_broker.config.kafka_releases import RELEASE
from klog_broker.config.setting_rows import (
    CLEANUP_POLICIES,
    CODECS,
    GZIP_LEVELS,
    LZ4_LEVELS,
    TIMESTAMP_TYPES,
    ZSTD_LEVELS,
)
from klog_broker.config.types import (
    LONG_MAX,
    AtLeast,
    Between,
    Bounds,
    Checked,
    Setting,
    SettingType,
    Value,
)

_BOOLEAN = SettingType.BOOLEAN
_STRING = SettingType.STRING
_INT = SettingType.INT
_LONG = SettingType.LONG
_DOUBLE = SettingType.DOUBLE
_LIST = SettingType.LIST

_TIERED = "klog has no tiered storage."
_QUOTA = "Replication quotas come with a later release."
_FORMAT = "New data is always stored in format 2, as in Kafka since 3.0."


def _throttled_replicas(value: Value) -> str | None:
    """Check a list of throttled replicas, which is ``*``, or has only ``partition:broker`` items.

    Returns the rule that the value breaks; None for a valid value. Empty items are ignored, as in
    Kafka.
    """
    items = value if isinstance(value, tuple) else ()
    if items == ("*",):
        return None
    for item in filter(None, items):
        partition, colon, broker = item.partition(":")
        if not (colon and _is_number(partition) and _is_number(broker)):
            return "must be * or partition:broker, comma-separated"
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


_REPLICAS = Checked("* or partition:broker, comma-separated", _throttled_replicas)


def _row(
    name: str,
    kind: SettingType,
    default: Value,
    broker_name: str | None,
    doc: str,
    bounds: Bounds | None = None,
    effect: str = "",
) -> Setting:
    return Setting(
        name, kind, default, doc, bounds, dynamic=True, effect=effect, broker_name=broker_name
    )


_ROWS = (
    _row(
        "cleanup.policy",
        _LIST,
        ("delete",),
        "log.cleanup.policy",
        "delete: old segments are deleted by time and size. compact: the last record of each key"
        " is kept. Both may be set.",
        CLEANUP_POLICIES,
    ),
    _row(
        "compression.type",
        _STRING,
        "producer",
        "compression.type",
        "The codec in which batches are stored; `producer` keeps what the producer chose.",
        CODECS,
    ),
    _row(
        "compression.gzip.level",
        _INT,
        -1,
        "compression.gzip.level",
        "The level where the broker compresses with gzip; -1 is the library's default.",
        GZIP_LEVELS,
    ),
    _row(
        "compression.lz4.level",
        _INT,
        9,
        "compression.lz4.level",
        "The level where the broker compresses with lz4.",
        LZ4_LEVELS,
    ),
    _row(
        "compression.zstd.level",
        _INT,
        3,
        "compression.zstd.level",
        "The level where the broker compresses with zstd.",
        ZSTD_LEVELS,
    ),
    _row(
        "delete.retention.ms",
        _LONG,
        86400000,
        "log.cleaner.delete.retention.ms",
        "How long compaction keeps tombstones (records without a value, which delete a key) and the"
        " markers of transactions.",
        AtLeast(0),
    ),
    _row(
        "file.delete.delay.ms",
        _LONG,
        60000,
        "log.segment.delete.delay.ms",
        "How long the files of a deleted segment stay, for reads that are still running.",
        AtLeast(0),
    ),
    _row(
        "flush.messages",
        _LONG,
        LONG_MAX,
        "log.flush.interval.messages",
        "The log is synced to disk after this many records; with 1, responses wait for the sync.",
        AtLeast(1),
    ),
    _row(
        "flush.ms",
        _LONG,
        LONG_MAX,
        "log.flush.interval.ms",
        "The longest time that an appended record stays unsynced.",
        AtLeast(0),
    ),
    _row(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        None,
        "Replicas whose fetching is throttled.",
        _REPLICAS,
        _QUOTA,
    ),
    _row(
        "index.interval.bytes",
        _INT,
        4096,
        "log.index.interval.bytes",
        "Bytes of log between two entries of the index.",
        AtLeast(0),
    ),
    _row(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        None,
        "Replicas to which their leaders send throttled.",
        _REPLICAS,
        _QUOTA,
    ),
    _row(
        "local.retention.bytes",
        _LONG,
        -2,
        "log.local.retention.bytes",
        "The bytes of a tiered topic that stay on the local disk.",
        AtLeast(-2),
        _TIERED,
    ),
    _row(
        "local.retention.ms",
        _LONG,
        -2,
        "log.local.retention.ms",
        "How long records of a tiered topic stay on the local disk.",
        AtLeast(-2),
        _TIERED,
    ),
    _row(
        "max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "log.cleaner.max.compaction.lag.ms",
        "The longest time that a record stays uncompacted: afterwards its log is compacted,"
        " whatever the ratio is.",
        AtLeast(1),
    ),
    _row(
        "max.message.bytes",
        _INT,
        1048588,
        "message.max.bytes",
        "The largest batch that is appended: its size as received (compressed).",
        AtLeast(0),
    ),
    _row(
        "message.downconversion.enable",
        _BOOLEAN,
        True,
        "log.message.downconversion.enable",
        "Whether records are converted to older formats for old consumers (Fetch below version 4).",
    ),
    _row(
        "message.format.version",
        _STRING,
        "3.0-IV1",
        "log.message.format.version",
        "The format of stored messages, by Kafka release.",
        RELEASE,
        _FORMAT,
    ),
    _row(
        "message.timestamp.after.max.ms",
        _LONG,
        LONG_MAX,
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may be after the broker's time.",
        AtLeast(0),
    ),
    _row(
        "message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may be before the broker's time.",
        AtLeast(0),
    ),
    _row(
        "message.timestamp.difference.max.ms",
        _LONG,
        LONG_MAX,
        "log.message.timestamp.difference.max.ms",
        "The older setting for both limits; applies to a limit that is not set.",
        AtLeast(0),
    ),
    _row(
        "message.timestamp.type",
        _STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "Whether a record has the timestamp of its producer (CreateTime) or of its append"
        " (LogAppendTime).",
        TIMESTAMP_TYPES,
    ),
    _row(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        0.5,
        "log.cleaner.min.cleanable.ratio",
        "A log is compacted if more than this part of its bytes was not compacted yet.",
        Between(0, 1),
    ),
    _row(
        "min.compaction.lag.ms",
        _LONG,
        0,
        "log.cleaner.min.compaction.lag.ms",
        "The shortest time that a record stays uncompacted, by the timestamps of its segment.",
        AtLeast(0),
    ),
    _row(
        "min.insync.replicas",
        _INT,
        1,
        "min.insync.replicas",
        "How many in-sync replicas must have a record before acks=all is acknowledged; at most the"
        " number of the partition's replicas counts.",
        AtLeast(1),
    ),
    _row(
        "preallocate",
        _BOOLEAN,
        False,
        "log.preallocate",
        "Whether a new segment takes its full size on disk at once.",
    ),
    _row(
        "remote.log.copy.disable",
        _BOOLEAN,
        False,
        None,
        "Whether a tiered topic stops copying segments to remote storage.",
        None,
        _TIERED,
    ),
    _row(
        "remote.log.delete.on.disable",
        _BOOLEAN,
        False,
        None,
        "Whether remote segments are deleted when tiering is turned off.",
        None,
        _TIERED,
    ),
    _row(
        "remote.storage.enable",
        _BOOLEAN,
        False,
        None,
        "Whether the topic is tiered. true is refused, as in a Kafka without remote storage.",
        None,
        _TIERED,
    ),
    _row(
        "retention.bytes",
        _LONG,
        -1,
        "log.retention.bytes",
        "The size of a partition beyond which whole old segments are deleted; -1: no limit.",
    ),
    _row(
        "retention.ms",
        _LONG,
        604800000,
        "log.retention.ms",
        "How long records are kept; -1: for ever.",
        AtLeast(-1),
    ),
    _row(
        "segment.bytes",
        _INT,
        1073741824,
        "log.segment.bytes",
        "The largest segment file; the next append goes to a new one.",
        AtLeast(14),
    ),
    _row(
        "segment.index.bytes",
        _INT,
        10485760,
        "log.index.size.max.bytes",
        "The size of a segment's index files; a full index rolls the segment.",
        AtLeast(4),
    ),
    _row(
        "segment.jitter.ms",
        _LONG,
        0,
        "log.roll.jitter.ms",
        "A random time up to this long is subtracted from segment.ms.",
        AtLeast(0),
    ),
    _row(
        "segment.ms",
        _LONG,
        604800000,
        "log.roll.ms",
        "The longest time, by the timestamps of records, after which a new segment begins.",
        AtLeast(1),
    ),
    _row(
        "unclean.leader.election.enable",
        _BOOLEAN,
        False,
        "unclean.leader.election.enable",
        "Whether a replica that may lack acknowledged records can become the leader if no in-sync"
        " replica is available.",
    ),
)

TOPIC_SETTINGS: dict[str, Setting] = {row.name: row for row in _ROWS}
assert len(TOPIC_SETTINGS) == len(_ROWS)
