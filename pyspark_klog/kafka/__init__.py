"""klog's Kafka client for Python, with the interface of confluent_kafka and without a C library.

The names, arguments and results are those of confluent_kafka, so that a program changes its import
and nothing else.
"""

from pyspark_klog.kafka._errors import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from pyspark_klog.kafka._message import Message
from pyspark_klog.kafka._model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Node,
    ThrottleEvent,
    TopicCollection,
    TopicPartitionInfo,
    Uuid,
)
from pyspark_klog.kafka._partitioners import consistent, fnv1a, murmur2
from pyspark_klog.kafka._producer import Producer
from pyspark_klog.kafka._topic_partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
)

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConcurrentModificationException",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "ElectionType",
    "IllegalStateException",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Node",
    "Producer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "consistent",
    "fnv1a",
    "murmur2",
]
