"""The declarations (rows) of the broker's settings that klog supports.

Names, types, defaults and bounds are those of Kafka 3.9.1, except for klog's own settings
(`KLOGS_OWN`) and the defaults that `DIFFERENT_DEFAULTS` lists with the reasons.
settings_without_effect.py lists Kafka's settings without effect in klog; topic_rows.py declares the
settings of topics.
"""

from klog_broker.config.cleaner_rows import COMPACTION
from klog_broker.config.cluster_rows import CLUSTER
from klog_broker.config.fetcher_rows import FETCHERS
from klog_broker.config.transaction_rows import TRANSACTIONS
from klog_broker.config.types import (
    INT_MAX,
    LONG_MAX,
    AtLeast,
    Between,
    OneOf,
    Setting,
    SettingType,
)

_BOOLEAN = SettingType.BOOLEAN
_STRING = SettingType.STRING
_INT = SettingType.INT
_SHORT = SettingType.SHORT
_LONG = SettingType.LONG
_LIST = SettingType.LIST

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

CODECS = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPES = OneOf(("CreateTime", "LogAppendTime"))
CLEANUP_POLICIES = OneOf(("compact", "delete"))
GZIP_LEVELS = Between(1, 9, also=(-1,))
LZ4_LEVELS = Between(1, 17)
ZSTD_LEVELS = Between(-131072, 22)

# Settings whose default differs from Kafka's: mostly because Kafka's default does not fit a
# standalone broker that is started by one command.
DIFFERENT_DEFAULTS = {
    "listeners": "klog's default is loopback; Kafka listens on all interfaces.",
    "log.dir": "a directory in the current one, which a reboot keeps; Kafka's is /tmp/kafka-logs.",
    "broker.id": "a standalone broker needs no generated id; Kafka's -1 requests one, and is klog's"
    " default in a cluster.",
    "node.id": "the reason is that of broker.id.",
    "num.recovery.threads.per.data.dir": "2 is Kafka 4's default; Kafka 3.9 has 1.",
}

# Settings of klog that Kafka does not have.
KLOGS_OWN = {
    "log.dir.min.free.bytes": "Kafka writes until the disk is full.",
    "metrics.listener": "Kafka publishes its metrics through JMX, which needs a JVM.",
    "strict.configs": "Kafka only logs that a setting is unknown; klog can refuse the setting.",
}

_NETWORK = (
    Setting(
        "listeners",
        _STRING,
        "PLAINTEXT://127.0.0.1:9092",
        "The addresses that the broker listens on: NAME://host:port, comma-separated. An empty host"
        " or 0.0.0.0 means all interfaces, port 0 any free port.",
    ),
    Setting(
        "advertised.listeners",
        _STRING,
        None,
        "The addresses that clients connect to, if they differ from `listeners` (behind a NAT or a"
        " port mapping). One address for each name; 0.0.0.0 is refused.",
    ),
    Setting(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The protocol of each listener, by its name: NAME:PROTOCOL, comma-separated. This release"
        " serves only PLAINTEXT.",
    ),
    Setting(
        "controller.listener.names",
        _STRING,
        None,
        "The listeners that only KRaft controllers use, comma-separated: klog does not open or"
        " advertise them.",
    ),
    Setting(
        "socket.listen.backlog.size",
        _INT,
        50,
        "How many connections may wait in the kernel until the broker accepts them.",
        AtLeast(1),
    ),
    Setting(
        "socket.receive.buffer.bytes",
        _INT,
        102400,
        "The kernel's receive buffer (SO_RCVBUF) of every connection. The kernel chooses the size"
        " if the setting is -1 or not set (the default applies only in Kafka).",
    ),
    Setting(
        "socket.send.buffer.bytes",
        _INT,
        102400,
        "The kernel's send buffer (SO_SNDBUF) of every connection. The kernel chooses the size if"
        " the setting is -1 or not set (the default applies only in Kafka).",
    ),
    Setting(
        "socket.request.max.bytes",
        _INT,
        104857600,
        "The largest request; a connection that announces a larger one is closed.",
        AtLeast(1),
    ),
    Setting(
        "connections.max.idle.ms",
        _LONG,
        600000,
        "The broker closes a connection that was idle for this long.",
    ),
    Setting(
        "max.connections",
        _INT,
        INT_MAX,
        "The most open connections. Further connections wait until another one closes.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        "The most open connections from one IP address. The broker closes further ones at once.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        "Other limits for some addresses: host:number, comma-separated.",
        dynamic=True,
    ),
    Setting(
        "queued.max.request.bytes",
        _LONG,
        -1,
        "At this many bytes in buffers of large requests (128 KiB or more), the broker reads no"
        " further large requests. -1: no limit.",
    ),
    Setting(
        "fetch.max.bytes",
        _INT,
        57671680,
        "The most bytes in the response to one Fetch, whatever the client requests. The first batch"
        " is sent even if it is larger.",
        AtLeast(1024),
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "The most fetch sessions. In a session, a client does not have to name all partitions in"
        " each Fetch. 0: no sessions.",
        AtLeast(0),
    ),
)

_IDENTITY = (
    Setting(
        "broker.id",
        _INT,
        0,
        "The broker's id, stored in meta.properties of its data directories: a directory with"
        " another id is refused. In a cluster, -1 or no value means that ZooKeeper generates the"
        " id, unless the data directories have one already.",
        fallbacks=(("node.id", 1),),
    ),
    Setting(
        "node.id",
        _INT,
        0,
        "The newer name of `broker.id`. If both are set, they must be equal.",
        fallbacks=(("broker.id", 1),),
    ),
    Setting(
        "broker.rack",
        _STRING,
        None,
        "The broker's rack, which Metadata responses contain. If each broker of a cluster has a"
        " rack, the replicas of new partitions are spread over the racks.",
    ),
    Setting(
        "log.dir",
        _STRING,
        "klog-data",
        "The data directory, if `log.dirs` is not set.",
    ),
    Setting(
        "log.dirs",
        _STRING,
        None,
        "The data directories, comma-separated; partitions are spread over them.",
        fallbacks=(("log.dir", 1),),
    ),
)

_TOPICS = (
    Setting(
        "auto.create.topics.enable",
        _BOOLEAN,
        True,
        "Whether the broker creates a missing topic that a Metadata request names, if the request"
        " allows the creation.",
    ),
    Setting(
        "delete.topic.enable",
        _BOOLEAN,
        True,
        "Whether topics can be deleted. If not, DeleteTopics fails with TOPIC_DELETION_DISABLED.",
    ),
    Setting(
        "num.partitions",
        _INT,
        1,
        "The partitions of a new topic, if its creator names no number.",
        AtLeast(1),
    ),
    Setting(
        "default.replication.factor",
        _INT,
        1,
        "The replicas of each partition of a new topic, if its creator names no number.",
    ),
    Setting(
        "min.insync.replicas",
        _INT,
        1,
        "How many in-sync replicas must have a record before acks=all is acknowledged; at most the"
        " number of the partition's replicas counts.",
        AtLeast(1),
        dynamic=True,
    ),
)

_MESSAGES = (
    Setting(
        "message.max.bytes",
        _INT,
        1048588,
        "The largest batch that is appended: its size as received (compressed).",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "compression.type",
        _STRING,
        "producer",
        "The codec in which batches are stored; `producer` keeps what the producer chose.",
        CODECS,
        dynamic=True,
    ),
    Setting(
        "compression.gzip.level",
        _INT,
        -1,
        "The level where the broker compresses with gzip; -1 is the library's default.",
        GZIP_LEVELS,
        dynamic=True,
    ),
    Setting(
        "compression.lz4.level",
        _INT,
        9,
        "The level where the broker compresses with lz4.",
        LZ4_LEVELS,
        dynamic=True,
    ),
    Setting(
        "compression.zstd.level",
        _INT,
        3,
        "The level where the broker compresses with zstd.",
        ZSTD_LEVELS,
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "Whether a record has the timestamp of its producer (CreateTime) or of its append"
        " (LogAppendTime).",
        TIMESTAMP_TYPES,
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far a record's timestamp may be before the broker's time. A record that is older fails"
        " with INVALID_TIMESTAMP. Only with CreateTime. If not set,"
        " log.message.timestamp.difference.max.ms applies.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        _LONG,
        LONG_MAX,
        "How far a record's timestamp may be after the broker's time. A record that is later fails"
        " with INVALID_TIMESTAMP. Only with CreateTime. If not set,"
        " log.message.timestamp.difference.max.ms applies.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.difference.max.ms",
        _LONG,
        LONG_MAX,
        "The older setting for both limits above.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.message.downconversion.enable",
        _BOOLEAN,
        True,
        "Whether records are converted to older formats for old consumers (Fetch below version 4)."
        " If not, old consumers get UNSUPPORTED_VERSION.",
        dynamic=True,
    ),
)

_SEGMENTS = (
    Setting(
        "log.segment.bytes",
        _INT,
        1073741824,
        "The largest segment file; the next append goes to a new one.",
        AtLeast(14),
        dynamic=True,
    ),
    Setting(
        "log.roll.ms",
        _LONG,
        None,
        "The longest time, by the timestamps of records, after which a new segment begins.",
        fallbacks=(("log.roll.hours", _HOUR_MS),),
        dynamic=True,
    ),
    Setting("log.roll.hours", _INT, 168, "`log.roll.ms` in hours, if that is not set.", AtLeast(1)),
    Setting(
        "log.roll.jitter.ms",
        _LONG,
        None,
        "A random time up to this long is subtracted from `log.roll.ms`, so that not all logs roll"
        " at the same time.",
        fallbacks=(("log.roll.jitter.hours", _HOUR_MS),),
        dynamic=True,
    ),
    Setting(
        "log.roll.jitter.hours",
        _INT,
        0,
        "`log.roll.jitter.ms` in hours, if that is not set.",
        AtLeast(0),
    ),
    Setting(
        "log.index.size.max.bytes",
        _INT,
        10485760,
        "The size of a segment's index files; a full index rolls the segment.",
        AtLeast(4),
        dynamic=True,
    ),
    Setting(
        "log.index.interval.bytes",
        _INT,
        4096,
        "Bytes of log between two entries of the index.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.preallocate",
        _BOOLEAN,
        False,
        "Whether a new segment takes its full size on disk at once.",
        dynamic=True,
    ),
    Setting(
        "log.cleanup.policy",
        _LIST,
        ("delete",),
        "What happens to old segments: delete by time and size, or compact by key, or both.",
        CLEANUP_POLICIES,
        dynamic=True,
    ),
    Setting(
        "log.segment.delete.delay.ms",
        _LONG,
        60000,
        "How long the files of a deleted segment stay, for reads that are still running.",
        AtLeast(0),
        dynamic=True,
    ),
)

_RETENTION = (
    Setting(
        "log.retention.ms",
        _LONG,
        None,
        "How long records are kept; -1: for ever.",
        fallbacks=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
        dynamic=True,
    ),
    Setting(
        "log.retention.minutes",
        _INT,
        None,
        "`log.retention.ms` in minutes, if that is not set.",
        fallbacks=(("log.retention.hours", 60),),
    ),
    Setting(
        "log.retention.hours",
        _INT,
        168,
        "`log.retention.ms` in hours, if neither that nor `log.retention.minutes` is set.",
    ),
    Setting(
        "log.retention.bytes",
        _LONG,
        -1,
        "The size of a partition beyond which whole old segments are deleted; -1: no limit.",
        dynamic=True,
    ),
    Setting(
        "log.retention.check.interval.ms",
        _LONG,
        300000,
        "How often the broker looks for segments to delete.",
        AtLeast(1),
    ),
)

_FLUSH = (
    Setting(
        "log.flush.interval.messages",
        _LONG,
        LONG_MAX,
        "A log is synced to disk after this many records. With 1, responses wait for the sync:"
        " records acknowledged by a standalone broker, or with acks=all, survive power failures.",
        AtLeast(1),
        dynamic=True,
    ),
    Setting(
        "log.flush.interval.ms",
        _LONG,
        None,
        "The longest time that an appended record stays unsynced.",
        fallbacks=(("log.flush.scheduler.interval.ms", 1),),
        dynamic=True,
    ),
    Setting(
        "log.dir.min.free.bytes",
        _LONG,
        32 << 20,
        "If less than this is free on the disk of a data directory, the broker refuses records of"
        " clients (NOT_ENOUGH_REPLICAS, which clients retry). Below a quarter of it, the broker"
        " also refuses commits of groups and ends of transactions. The broker accepts them again"
        " when a quarter more is free. 0: never refuses.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "How many logs of each data directory are loaded in parallel at the start, and recovered"
        " after an unclean shutdown. A change while the broker runs applies at the next start.",
        AtLeast(1),
        dynamic=True,
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        _LONG,
        LONG_MAX,
        "How often the broker looks for logs that are due to be synced.",
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        _INT,
        60000,
        "How often the recovery points are written. After an unclean shutdown, the next start scans"
        " the records after them.",
        AtLeast(0),
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        _INT,
        60000,
        "How often the logs' start offsets are written.",
        AtLeast(0),
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        "How often the high watermarks are written.",
    ),
)

_PRODUCERS = (
    Setting(
        "producer.id.expiration.ms",
        _INT,
        86400000,
        "How long a partition keeps the state of a producer that sends nothing.",
        AtLeast(1),
        dynamic=True,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        _INT,
        600000,
        "How often partitions look for expired producers.",
        AtLeast(1),
    ),
)

_GROUPS = (
    Setting(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        "How long the first rebalance of an empty group waits for more members.",
    ),
    Setting(
        "group.min.session.timeout.ms",
        _INT,
        6000,
        "The shortest session timeout that a member may ask for.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        _INT,
        1800000,
        "The longest session timeout that a member may ask for.",
    ),
    Setting("group.max.size", _INT, INT_MAX, "The most members of one group.", AtLeast(1)),
    Setting(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        "The longest metadata text of a committed offset, in UTF-16 units.",
    ),
    Setting(
        "offsets.commit.timeout.ms",
        _INT,
        5000,
        "How long a commit waits for its replicas before it fails.",
        AtLeast(1),
    ),
    Setting(
        "offsets.retention.minutes",
        _INT,
        10080,
        "How long the offsets of a group without members are kept.",
        AtLeast(1),
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        _LONG,
        600000,
        "How often the broker looks for expired offsets.",
        AtLeast(1),
    ),
    Setting(
        "offsets.topic.num.partitions",
        _INT,
        50,
        "Partitions of __consumer_offsets; they cannot be changed after its creation.",
        AtLeast(1),
    ),
    Setting(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        "Replicas of __consumer_offsets. A cluster creates the topic once it has this many brokers;"
        " a standalone broker creates one replica.",
        AtLeast(1),
    ),
    Setting(
        "offsets.topic.segment.bytes",
        _INT,
        104857600,
        "segment.bytes of __consumer_offsets.",
        AtLeast(1),
    ),
    Setting(
        "offsets.topic.compression.codec",
        _INT,
        0,
        "The codec of __consumer_offsets by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        Between(0, 4),
    ),
)

_METRICS = (
    Setting(
        "metrics.listener",
        _STRING,
        None,
        "The address that serves metrics and health over HTTP, without authentication: host:port,"
        " such as 127.0.0.1:9404. An empty host or 0.0.0.0 means all interfaces, port 0 any free"
        " port.",
    ),
)

_STRICTNESS = (
    Setting(
        "strict.configs",
        _BOOLEAN,
        False,
        "Whether the broker refuses settings without effect in klog, in its file and in requests of"
        " clients that change brokers or topics. If not, it accepts them with a warning.",
    ),
)

#: The sections of docs/configuration.md in their order: each title with the rows below it.
SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Network": _NETWORK,
    "Identity and directories": _IDENTITY,
    "Topics": _TOPICS,
    "Messages": _MESSAGES,
    "Segments": _SEGMENTS,
    "Retention": _RETENTION,
    "Compaction": COMPACTION,
    "Flush and recovery": _FLUSH,
    "Producers": _PRODUCERS,
    "Groups and committed offsets": _GROUPS,
    "Transactions": TRANSACTIONS,
    "Cluster": (*CLUSTER, *FETCHERS),
    "Metrics": _METRICS,
    "Strictness": _STRICTNESS,
}

SETTINGS: dict[str, Setting] = {row.name: row for rows in SECTIONS.values() for row in rows}
assert len(SETTINGS) == sum(len(rows) for rows in SECTIONS.values())
