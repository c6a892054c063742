"""The declarations (rows) of the broker's settings that klog supports.

Names, types, defaults and bounds are those of Kafka 3.9.1; `DIFFERENT_DEFAULTS` gives the reason
for each other default. ignored.py lists Kafka's settings without effect in klog; topic_rows.py
declares the settings of topics.
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
    "listeners": "klog listens on loopback unless told otherwise; Kafka on all interfaces.",
    "log.dir": "a directory under the current one, kept at a reboot; Kafka takes /tmp/kafka-logs.",
    "broker.id": "a broker without a cluster needs no generated number; Kafka's -1 asks for one,"
    " and is the default in a cluster.",
    "node.id": "as broker.id.",
    "num.recovery.threads.per.data.dir": "as in Kafka 4; Kafka 3.9 takes 1.",
}

# Settings of klog that Kafka does not have.
KLOGS_OWN = {
    "log.dir.min.free.bytes": "Kafka writes until the disk is full.",
    "metrics.listener": "Kafka tells its metrics through JMX, which only a JVM has.",
    "strict.configs": "Kafka says in its log alone that a setting is unknown; klog can refuse it.",
}

_NETWORK = (
    Setting(
        "listeners",
        _STRING,
        "PLAINTEXT://127.0.0.1:9092",
        "Where the broker listens: NAME://host:port, comma-separated. An empty host or 0.0.0.0"
        " means all interfaces, port 0 takes a free port.",
    ),
    Setting(
        "advertised.listeners",
        _STRING,
        None,
        "What clients are told to connect to, where it differs from `listeners` (behind a NAT or a"
        " port mapping). One address for each name; 0.0.0.0 is refused.",
    ),
    Setting(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which protocol each listener's name speaks: NAME:PROTOCOL, comma-separated. This release"
        " serves PLAINTEXT.",
    ),
    Setting(
        "controller.listener.names",
        _STRING,
        None,
        "The listeners that only KRaft's controllers use, comma-separated: klog opens none of them"
        " and tells no client of them.",
    ),
    Setting(
        "socket.listen.backlog.size",
        _INT,
        50,
        "Connections that the kernel keeps waiting before the broker accepts them.",
        AtLeast(1),
    ),
    Setting(
        "socket.receive.buffer.bytes",
        _INT,
        102400,
        "The kernel's receive buffer (SO_RCVBUF) of every connection. Left to the kernel where it "
        "is -1, and where it is not set, whatever the default says.",
    ),
    Setting(
        "socket.send.buffer.bytes",
        _INT,
        102400,
        "The kernel's send buffer (SO_SNDBUF) of every connection. Left to the kernel where it "
        "is -1, and where it is not set, whatever the default says.",
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
        "A connection on which nothing happens for this long is closed.",
    ),
    Setting(
        "max.connections",
        _INT,
        INT_MAX,
        "Open connections at any time; beyond it new ones wait until another one closes.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        "Open connections of one address; beyond it new ones are closed at once.",
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
        "Bytes of requests that wait in the broker; beyond it reading stops. -1: no such limit.",
    ),
    Setting(
        "fetch.max.bytes",
        _INT,
        57671680,
        "The most bytes in the reply to one Fetch, whatever the client asks for; the first batch"
        " is sent even if it is larger.",
        AtLeast(1024),
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        "How many clients can have a fetch session, which spares them to name all partitions with"
        " each Fetch. 0: none.",
        AtLeast(0),
    ),
)

_IDENTITY = (
    Setting(
        "broker.id",
        _INT,
        0,
        "The broker's number, kept in meta.properties of its data directories: a directory that"
        " belongs to another number is refused. In a cluster -1, or no number, asks ZooKeeper for"
        " one, unless the data directories have one already.",
        fallbacks=(("node.id", 1),),
    ),
    Setting(
        "node.id",
        _INT,
        0,
        "The newer name of `broker.id`; if both are set they must agree.",
        fallbacks=(("broker.id", 1),),
    ),
    Setting(
        "broker.rack",
        _STRING,
        None,
        "The broker's rack: told to clients in Metadata replies; a cluster in which each broker has"
        " one spreads the replicas of new partitions over them.",
    ),
    Setting(
        "log.dir",
        _STRING,
        "klog-data",
        "The data directory, where `log.dirs` is not set.",
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
        "Whether a topic that a client asks for in Metadata, and allows to be made, is created.",
    ),
    Setting(
        "delete.topic.enable",
        _BOOLEAN,
        True,
        "Whether DeleteTopics deletes; if not, it gets TOPIC_DELETION_DISABLED.",
    ),
    Setting(
        "num.partitions",
        _INT,
        1,
        "Partitions of a topic whose creator names no number.",
        AtLeast(1),
    ),
    Setting(
        "default.replication.factor",
        _INT,
        1,
        "Replicas of a topic whose creator names no number.",
    ),
    Setting(
        "min.insync.replicas",
        _INT,
        1,
        "How many replicas, of those there are, must have a record before acks=all is answered.",
        AtLeast(1),
        dynamic=True,
    ),
)

_MESSAGES = (
    Setting(
        "message.max.bytes",
        _INT,
        1048588,
        "The largest batch that is appended, as it came (compressed).",
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
        "Whether a record keeps the producer's time or gets that of its append.",
        TIMESTAMP_TYPES,
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.before.max.ms",
        _LONG,
        LONG_MAX,
        "How far a record's time may lie before the broker's; older ones get INVALID_TIMESTAMP."
        " Only with CreateTime. If it is not set, the difference below counts.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.after.max.ms",
        _LONG,
        LONG_MAX,
        "How far a record's time may lie after the broker's; later ones get INVALID_TIMESTAMP."
        " Only with CreateTime. If it is not set, the difference below counts.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.message.timestamp.difference.max.ms",
        _LONG,
        LONG_MAX,
        "The older way to name both limits above at once.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.message.downconversion.enable",
        _BOOLEAN,
        True,
        "Whether old consumers (Fetch below 4) are served by conversion down; if not, they get"
        " UNSUPPORTED_VERSION.",
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
        "The longest time that one segment takes records, by their timestamps.",
        fallbacks=(("log.roll.hours", _HOUR_MS),),
        dynamic=True,
    ),
    Setting("log.roll.hours", _INT, 168, "`log.roll.ms` in hours; that one counts.", AtLeast(1)),
    Setting(
        "log.roll.jitter.ms",
        _LONG,
        None,
        "A random time up to this long is taken off `log.roll.ms`, so that not all logs roll at"
        " once.",
        fallbacks=(("log.roll.jitter.hours", _HOUR_MS),),
        dynamic=True,
    ),
    Setting(
        "log.roll.jitter.hours",
        _INT,
        0,
        "`log.roll.jitter.ms` in hours; that one counts.",
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
        "How long the files of a deleted segment stay, for readers that are at them.",
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
        "`log.retention.ms` in minutes; that one counts.",
        fallbacks=(("log.retention.hours", 60),),
    ),
    Setting(
        "log.retention.hours",
        _INT,
        168,
        "`log.retention.ms` in hours; that one and the minutes count before it.",
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
        "After how many records a log is synced to disk. With 1 a reply waits for the sync, and"
        " what is acknowledged survives a power cut.",
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
        "Free space on the disk of a data directory below which records of clients are refused"
        " (NOT_ENOUGH_REPLICAS, on which clients try again); commits of groups and ends of"
        " transactions below a quarter. They are taken again when a quarter more is free. 0"
        " refuses nothing.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "num.recovery.threads.per.data.dir",
        _INT,
        2,
        "How many logs of each data directory are loaded at once at the start, or looked through"
        " after a broker that was killed. What is given while the broker runs counts at the next"
        " start.",
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
        "How often the recovery points are written: an unclean start scans what lies after them.",
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
        "How long a partition remembers a producer that sends nothing.",
        AtLeast(1),
        dynamic=True,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        _INT,
        600000,
        "How often partitions look for producers to forget.",
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
        "The longest text, in UTF-16 units, that a client may store beside a committed offset.",
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
        "How often the broker looks for offsets to forget.",
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
        "Replicas of __consumer_offsets. A cluster makes it once it has so many brokers; a"
        " broker that runs alone makes one.",
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
        "Where metrics and health are told over HTTP: host:port, as 127.0.0.1:9404. An empty host"
        " or 0.0.0.0 means all interfaces, port 0 takes a free port. Nobody is asked who they are.",
    ),
)

_STRICTNESS = (
    Setting(
        "strict.configs",
        _BOOLEAN,
        False,
        "Whether settings that have no effect here are refused, in the file and where clients give"
        " them to brokers and topics; if not, they are accepted with a warning.",
    ),
)

#: By the title of a section: its rows, in the order of the printed documentation.
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
