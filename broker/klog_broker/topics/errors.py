"""Translate the errors of the metadata store and the logs to errors with Kafka's codes."""

import logging

from klog_broker.log.errors import InconsistentTopicId, LogStorageError
from klog_broker.metadata.errors import (
    InvalidTopicName,
    NoResponse,
    NotInClusters,
    PartitionsChanged,
    StoreFailed,
    TooManyQuotas,
    TopicExists,
    UnknownTopic,
    UnreadableConfig,
)
from pyspark_klog.errors import BrokerError, ErrorCode

_log = logging.getLogger("klog.topics")

_CODES: dict[type, ErrorCode] = {
    InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    PartitionsChanged: ErrorCode.INVALID_PARTITIONS,
    UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    TooManyQuotas: ErrorCode.POLICY_VIOLATION,
    NotInClusters: ErrorCode.POLICY_VIOLATION,
    NoResponse: ErrorCode.REQUEST_TIMED_OUT,
    UnreadableConfig: ErrorCode.INVALID_CONFIG,
    StoreFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    LogStorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
}


def as_broker_error(error: BaseException | None) -> BrokerError:
    """Return the error that a client gets: ``error`` itself if it is a BrokerError, else an error
    with Kafka's code and the text of ``error``.

    If _CODES has neither the class of such an ``error`` nor one of its base classes, the error is a
    bug: it is logged, and the client gets UNKNOWN_SERVER_ERROR.
    """
    if isinstance(error, BrokerError):
        return error
    for kind in type(error).__mro__:
        if kind in _CODES:
            return BrokerError(_CODES[kind], str(error))
    _log.error("a change of topics or quotas failed", exc_info=error)
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
