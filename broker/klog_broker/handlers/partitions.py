"""Which log a request means, and whether this broker may serve it: shared by the data APIs."""

from klog_broker.handlers.context import BrokerServices
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.image import Topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, TopicPartition


def topic_by_id(broker: BrokerServices, topic_id: UUID) -> Topic:
    """The topic with this id; BrokerError UNKNOWN_TOPIC_ID if there is none (any more)."""
    topic = broker.metadata.image.topic_by_id(topic_id)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    return topic


def led_log(broker: BrokerServices, topic: str, partition: int) -> PartitionLog:
    """The log of a partition that this broker leads; BrokerError if it cannot be used."""
    log = broker.logs.get(TopicPartition(topic, partition))
    state = broker.metadata.image.partition(topic, partition)
    if state is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if log is None or state.leader != broker.broker_id:
        # Also while a new topic's logs are being made: the client tries again in a moment.
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if log.is_offline:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
    return log


def check_leader_epoch(log: PartitionLog, current_leader_epoch: int) -> None:
    """The leader epoch that the client knows must be the log's (KIP-320); -1: it knows none."""
    if current_leader_epoch < 0 or current_leader_epoch == log.leader_epoch:
        return
    if current_leader_epoch < log.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH)
