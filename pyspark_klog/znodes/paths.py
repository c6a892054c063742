"""Where Kafka's znodes are."""

import re

from pyspark_klog.ids import BrokerId, TopicPartition

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
"""Without data: the version that setting its data gives is the next generated broker id."""
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
MIGRATION = "/migration"
"""There if the cluster is on its way to KRaft."""
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
"""What a broker makes at its start, with the parents, where it is missing: all without data."""


_BROKER = re.compile("0|[1-9][0-9]{0,9}", re.ASCII)


def broker_path(broker_id: BrokerId) -> str:
    """Where a broker registers; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def registered_id(name: str) -> BrokerId | None:
    """The broker that a child of BROKER_IDS is of, by its name; None if it is of none."""
    if not _BROKER.fullmatch(name) or int(name) >= 1 << 31:
        return None
    return BrokerId(int(name))


def topic_path(topic: str) -> str:
    """A topic's assignment; its partitions are below it."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions; without data."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """The parent of a partition's state; without data."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """A partition's leader and in-sync set."""
    return f"{partition_path(partition)}/state"


def delete_topic_path(topic: str) -> str:
    """There without data while the topic is to be deleted."""
    return f"{DELETE_TOPICS}/{topic}"


def sequence_number(name: str, prefix: str) -> int | None:
    """The number of a sequential znode by its name (config_change_0000000012), None if it is
    none. ZooKeeper's numbers of 32 bits become negative some day."""
    digits = name.removeprefix(prefix)
    if digits == name or not digits.isascii() or not digits.removeprefix("-").isdigit():
        return None
    return int(digits) if len(digits) <= 11 else None
