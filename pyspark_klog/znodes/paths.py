"""Paths of Kafka's znodes in ZooKeeper, relative to the chroot."""

import re

from pyspark_klog.ids import BrokerId, TopicPartition

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
"""A znode without data. A broker without a configured id writes to it and gets the id
reserved.broker.max.id + the new version of the znode."""
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
MIGRATION = "/migration"
"""The znode exists if the cluster is migrating to KRaft."""
CONSUMERS = "/consumers"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
DELETE_TOPICS = "/admin/delete_topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"

CONFIG_CHANGE_PREFIX = "config_change_"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"

PERSISTENT = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{each}" for each in ("topics", "clients", "users", "brokers", "ips")),
)
"""Znodes that a broker creates at start-up, without data and with their parents, unless they
exist."""


_BROKER = re.compile("0|[1-9][0-9]{0,9}", re.ASCII)


def broker_path(broker_id: BrokerId) -> str:
    """Return the path of a broker's registration, an ephemeral znode."""
    return f"{BROKER_IDS}/{broker_id}"


def registered_id(name: str) -> BrokerId | None:
    """Return the broker id in the name of a child of BROKER_IDS; None if the name is no id."""
    if not _BROKER.fullmatch(name) or int(name) >= 1 << 31:
        return None
    return BrokerId(int(name))


def topic_path(topic: str) -> str:
    """Return the path of the znode with a topic's replica assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path of the znode without data that is the parent of the znodes of a topic's
    partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """Return the path of the znode without data that is the parent of the znode with a partition's
    state."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """Return the path of the znode with a partition's leader and ISR."""
    return f"{partition_path(partition)}/state"


def delete_topic_path(topic: str) -> str:
    """Return the path of the znode, without data, that requests the deletion of a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def sequence_number(name: str, prefix: str) -> int | None:
    """Return the number in the name of a sequential znode, 12 for config_change_0000000012.

    Other names give None. ZooKeeper counts with 32 bits, so a number can become negative.
    """
    digits = name.removeprefix(prefix)
    if digits == name or not digits.isascii() or not digits.removeprefix("-").isdigit():
        return None
    return int(digits) if len(digits) <= 11 else None
