"""Translates errors of a coordinator's log, a partition of __consumer_offsets or of
__transaction_state, into error codes for clients. The errors are failed appends, and a high
watermark that does not pass an append in time."""

from klog_broker.log.errors import (
    InvalidProducerEpoch,
    OutOfDescriptors,
    RecordBatchTooLarge,
    RecordTooLarge,
)
from klog_broker.runtime.system.descriptors import is_exhausted
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError

# The client's error for an error of an append to a partition of __consumer_offsets or
# __transaction_state, as in Kafka's GroupMetadataManager and CoordinatorOperationExceptionHelper.
# Error codes that are not in this table become NOT_COORDINATOR.
_CLIENT_ERRORS = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def client_error(code: ErrorCode) -> ErrorCode:
    """Translate an error of a coordinator's log into the error code that the client gets.

    COORDINATOR_NOT_AVAILABLE means that this broker cannot serve the request now, NOT_COORDINATOR
    that it is not the coordinator or that its log failed. After both, clients look the coordinator
    up and retry.
    """
    return _CLIENT_ERRORS.get(code, ErrorCode.NOT_COORDINATOR)


def append_client_error(error: KlogError) -> ErrorCode:
    """Translate an error that :meth:`StateLog.append` raised into the client's error code."""
    if isinstance(error, RecordTooLarge | RecordBatchTooLarge):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if isinstance(error, InvalidProducerEpoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return client_error(error.code) if isinstance(error, BrokerError) else ErrorCode.NOT_COORDINATOR


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether a read of a log failed only because no file descriptor was free, so that a retry can
    succeed."""
    return isinstance(error, OutOfDescriptors) or (
        isinstance(error, OSError) and is_exhausted(error)
    )
