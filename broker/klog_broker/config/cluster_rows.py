"""The declarations (rows) of settings of a broker in a cluster; setting_rows.py includes them."""

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
        " optionally followed by a path (/kafka) for all znodes of the cluster. Not set: the broker"
        " is standalone, and the other settings of this section have no effect.",
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        _INT,
        18000,
        "ZooKeeper ends the broker's session after this time without a message from the broker."
        " ZooKeeper limits the time to between 2 and 20 of its ticks.",
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        "How long a starting broker waits for a ZooKeeper server before the broker exits. Not set:"
        " zookeeper.session.timeout.ms.",
        fallbacks=(("zookeeper.session.timeout.ms", 1),),
    ),
    Setting(
        "zookeeper.max.in.flight.requests",
        _INT,
        10,
        "The most requests to ZooKeeper without a response; values above 64 count as 64.",
        AtLeast(1),
    ),
    Setting(
        "broker.id.generation.enable",
        SettingType.BOOLEAN,
        True,
        "Whether ZooKeeper generates the id of a broker whose `broker.id` is -1 or not set.",
    ),
    Setting(
        "reserved.broker.max.id",
        _INT,
        1000,
        "Generated ids begin after this one. With broker.id.generation.enable, `broker.id` must not"
        " be above it.",
        AtLeast(0),
    ),
    Setting(
        "inter.broker.listener.name",
        _STRING,
        None,
        "The name of the listener for connections between brokers. Not set: the listener with the"
        " name in security.inter.broker.protocol. Do not set both.",
    ),
    Setting(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "The protocol of connections between brokers.",
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
        "How long the controller waits for a broker's response, and a stopping broker for the"
        " response to ControlledShutdown.",
        AtLeast(1),
    ),
    Setting(
        "controlled.shutdown.enable",
        SettingType.BOOLEAN,
        True,
        "Whether a stopping broker first asks the controller to move its leaderships to other"
        " brokers.",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        _INT,
        3,
        "How often a stopping broker asks the controller before it stops in any case.",
        AtLeast(0),
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        SettingType.LONG,
        5000,
        "How long a stopping broker waits before it asks the controller again.",
        AtLeast(0),
    ),
    Setting(
        "unclean.leader.election.enable",
        SettingType.BOOLEAN,
        False,
        "Whether a replica that may lack acknowledged records can become the leader if no in-sync"
        " replica is available. Topics can override it.",
        dynamic=True,
    ),
    Setting(
        "replica.lag.time.max.ms",
        SettingType.LONG,
        30000,
        "A follower that has not caught up with its leader for this long is no longer in sync.",
        AtLeast(1),
    ),
)
