"""What tools and brokers ask the controller for by a znode: /admin and the notifications.

(/admin/delete_topics/T has no data: paths.delete_topic_path.)
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
    """/admin/reassign_partitions: the brokers that each partition shall have; version 1."""
    partitions = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(brokers)}
        for each, brokers in replicas.items()
    ]
    return write_json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The last row of a partition counts, as for Kafka.

    :raises ZnodeError: if it is none
    """
    fields = read_object(REASSIGN_PARTITIONS, data)
    rows = fields.inner_objects("partitions")
    return {_partition(each): each.broker_ids("replicas") for each in rows}


def encode_preferred_replica_election(partitions: Iterable[TopicPartition]) -> bytes:
    """/admin/preferred_replica_election: where the preferred leader shall lead; version 1."""
    return _encode_partitions(partitions)


def decode_preferred_replica_election(data: bytes | None) -> tuple[TopicPartition, ...]:
    """:raises ZnodeError: if it is none"""
    return _decode_partitions(PREFERRED_REPLICA_ELECTION, data)


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """/isr_change_notification/isr_change_N: a leader before Kafka 2.7 has changed an in-sync set
    itself; version 1."""
    return _encode_partitions(partitions)


def decode_isr_change(name: str, data: bytes | None) -> tuple[TopicPartition, ...]:
    """``name`` is the znode's below /isr_change_notification.

    :raises ZnodeError: if it is none
    """
    return _decode_partitions(f"{ISR_CHANGES}/{name}", data)


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    """/log_dir_event_notification/log_dir_event_N: a data directory of the broker has failed;
    version 1."""
    return write_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILED})


def decode_log_dir_event(name: str, data: bytes | None) -> BrokerId:
    """The broker. Kafka knows one event only, and does not look at it. ``name`` is the znode's
    below /log_dir_event_notification.

    :raises ZnodeError: if it is none
    """
    fields = read_object(f"{LOG_DIR_EVENTS}/{name}", data)
    return BrokerId(fields.int32("broker", minimum=0))


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    rows = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return write_json({"version": 1, "partitions": rows})


def _decode_partitions(path: str, data: bytes | None) -> tuple[TopicPartition, ...]:
    fields = read_object(path, data)
    # A dict keeps the order and forgets repetitions.
    return tuple(dict.fromkeys(_partition(each) for each in fields.inner_objects("partitions")))


def _partition(fields: JsonObject) -> TopicPartition:
    return TopicPartition(fields.text("topic"), fields.int32("partition", minimum=0))
