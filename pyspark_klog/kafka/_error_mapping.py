"""Turns the errors of klog's client into confluent_kafka's codes."""

from pyspark_klog.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DeliveryFailed,
    NoBrokerAvailable,
    RequestTimedOut,
    TimedOut,
    TlsFailed,
    TopicMissing,
    UnsupportedByBroker,
    is_retriable,
)
from pyspark_klog.client.producer.out_records import PartitionMissing, Purged
from pyspark_klog.errors import BrokerError, KlogError
from pyspark_klog.kafka._errors import KafkaError

_CODES: tuple[tuple[type[KlogError], int], ...] = (
    (PartitionMissing, KafkaError._UNKNOWN_PARTITION),
    (TopicMissing, KafkaError._UNKNOWN_TOPIC),
    (TimedOut, KafkaError._MSG_TIMED_OUT),
    (RequestTimedOut, KafkaError._TIMED_OUT),
    (NoBrokerAvailable, KafkaError._ALL_BROKERS_DOWN),
    (AuthenticationFailed, KafkaError._AUTHENTICATION),
    (TlsFailed, KafkaError._SSL),
    (ConnectionFailed, KafkaError._TRANSPORT),
    (UnsupportedByBroker, KafkaError._UNSUPPORTED_FEATURE),
)


def kafka_error(error: KlogError) -> KafkaError:
    """Return the error of a record or a request with confluent_kafka's code and klog's text."""
    code: int = KafkaError._FAIL
    if isinstance(error, Purged):
        code = KafkaError._PURGE_INFLIGHT if error.is_sent else KafkaError._PURGE_QUEUE
    elif isinstance(error, BrokerError | DeliveryFailed) and error.code is not None:
        code = int(error.code)
    else:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), code)
    return KafkaError(code, str(error), retriable=is_retriable(error))
