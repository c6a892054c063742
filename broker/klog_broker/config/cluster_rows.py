"""The declarations (rows) of the settings of a broker in a cluster; rows.py includes them."""

from klog_broker.config.kafka_releases import RELEASE
from klog_broker.config.listeners import PROTOCOLS
from klog_broker.config.types import AtLeast, OneOf, Setting, SettingType

_STRING = SettingType.STRING
_INT = SettingType.INT

CLUSTER = (
    Setting(
        "zookeeper.connect",
        _STRING,
        None,
        "The ZooKeeper servers of the cluster that the broker joins: host:port, comma-separated,"
        " and after the last one perhaps a path (/kafka) below which the cluster keeps everything."
        " Not set: the broker runs alone, and the other settings of this section do nothing.",
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        _INT,
        18000,
        "After this time without a word from the broker ZooKeeper takes it for dead. ZooKeeper has"
        " bounds of its own: 2 and 20 of its ticks.",
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        "How long a start waits for a ZooKeeper server before the broker ends. Not set: "
        "zookeeper.session.timeout.ms.",
        fallbacks=(("zookeeper.session.timeout.ms", 1),),
    ),
    Setting(
        "zookeeper.max.in.flight.requests",
        _INT,
        10,
        "Requests on their way to ZooKeeper at any time; no more than 64, whatever is set.",
        AtLeast(1),
    ),
    Setting(
        "broker.id.generation.enable",
        SettingType.BOOLEAN,
        True,
        "Whether ZooKeeper gives a number to a broker whose `broker.id` is -1 or not set.",
    ),
    Setting(
        "reserved.broker.max.id",
        _INT,
        1000,
        "Generated numbers begin after this one, and with broker.id.generation.enable no"
        " `broker.id` may be above it.",
        AtLeast(0),
    ),
    Setting(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The listener on which the brokers talk to each other. If it is not set, the one that is"
        " named as security.inter.broker.protocol; both cannot be set.",
    ),
    Setting(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "The protocol that the brokers speak with each other.",
        OneOf(PROTOCOLS),
    ),
    Setting(
        "inter.broker.protocol.version",
        _STRING,
        "3.9-IV0",
        "The release of Kafka whose requests the brokers send each other: from 3.5 to 3.9.",
        RELEASE,
    ),
    Setting(
        "controller.socket.timeout.ms",
        _INT,
        30000,
        "How long the brokers and the controller wait for each other's answers.",
        AtLeast(1),
    ),
    Setting(
        "controlled.shutdown.enable",
        SettingType.BOOLEAN,
        True,
        "Whether a broker that is told to stop first has the controller give its partitions to"
        " others.",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        _INT,
        3,
        "How often it asks, before it stops in any case.",
        AtLeast(0),
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        SettingType.LONG,
        5000,
        "How long it waits before it asks again.",
        AtLeast(0),
    ),
    Setting(
        "unclean.leader.election.enable",
        SettingType.BOOLEAN,
        False,
        "Whether a replica that lacks acknowledged records may lead when no other is there. Topics"
        " can have it otherwise.",
        dynamic=True,
    ),
    Setting(
        "replica.lag.time.max.ms",
        SettingType.LONG,
        30000,
        "A follower that has not had all records of its leader for so long is no longer in sync.",
        AtLeast(1),
    ),
)
