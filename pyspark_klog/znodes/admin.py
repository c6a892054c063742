"""Znodes with requests to the controller: /admin, changed ISRs and failed log directories.

/admin/delete_topics/T has no data; paths.delete_topic_path gives its path.
"""

from collections.abc import Iterable, Mapping

from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.znodes.data import JsonObject, read_object, write_json
from pyspark_klog.znodes.paths import (
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
)

_LOG_DIR_FAILED = 1


def encode_reassignment(replicas: Mapping[TopicPartition, Iterable[BrokerId]]) -> bytes:
    """Encode /admin/reassign_partitions in version 1: the new replicas of each partition."""
    partitions = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(brokers)}
        for each, brokers in replicas.items()
    ]
    return write_json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Decode /admin/reassign_partitions: the new replicas of each partition.

    If a partition occurs more than once, its last entry counts, like in Kafka.

    :raises ZnodeError: if ``data`` is no reassignment
    """
    fields = read_object(REASSIGN_PARTITIONS, data)
    rows = fields.inner_objects("partitions")
    return {_partition(each): each.broker_ids("replicas") for each in rows}


def encode_preferred_replica_election(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode /admin/preferred_replica_election in version 1: partitions whose preferred replica
    should become leader."""
    return _encode_partitions(partitions)


def decode_preferred_replica_election(data: bytes | None) -> tuple[TopicPartition, ...]:
    """Decode /admin/preferred_replica_election: the partitions whose preferred replica should
    become leader, without repetitions.

    :raises ZnodeError: if ``data`` is no list of partitions
    """
    return _decode_partitions(PREFERRED_REPLICA_ELECTION, data)


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode /isr_change_notification/isr_change_N in version 1: partitions with a changed ISR.

    Leaders on brokers before Kafka 2.7 change the ISR in ZooKeeper themselves, and then create this
    znode.
    """
    return _encode_partitions(partitions)


def decode_isr_change(name: str, data: bytes | None) -> tuple[TopicPartition, ...]:
    """Decode /isr_change_notification/``name``: the partitions with a changed ISR, without
    repetitions.

    :raises ZnodeError: if ``data`` is no list of partitions
    """
    return _decode_partitions(f"{ISR_CHANGES}/{name}", data)


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    """Encode /log_dir_event_notification/log_dir_event_N in version 1.

    The znode says that a log directory of the broker has failed.
    """
    return write_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode_log_dir_event(name: str, data: bytes | None) -> BrokerId:
    """Decode /log_dir_event_notification/``name``: the broker whose log directory failed.

    Kafka has one kind of event only, and does not check the kind; neither does this function.

    :raises ZnodeError: if ``data`` names no broker
    """
    fields = read_object(f"{LOG_DIR_EVENTS}/{name}", data)
    return BrokerId(fields.int32("broker", minimum=0))


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    rows = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return write_json({"version": 1, "partitions": rows})


def _decode_partitions(path: str, data: bytes | None) -> tuple[TopicPartition, ...]:
    fields = read_object(path, data)
    # A dict removes repetitions and keeps the order.
    return tuple(dict.fromkeys(_partition(each) for each in fields.inner_objects("partitions")))


def _partition(fields: JsonObject) -> TopicPartition:
    return TopicPartition(fields.text("topic"), fields.int32("partition", minimum=0))
