"""Errors of a coordinator's log (append refused, watermark not reached), as clients see them."""

from klog_broker.log.errors import (
    InvalidProducerEpoch,
    OutOfDescriptors,
    RecordBatchTooLarge,
    RecordTooLarge,
)
from klog_broker.runtime.system.descriptors import is_exhausted
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError

# As Kafka's GroupMetadataManager and CoordinatorOperationExceptionHelper translate errors.
_TOLD = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def told(code: ErrorCode) -> ErrorCode:
    """What clients of a coordinator are told for an error of its partition.

    COORDINATOR_NOT_AVAILABLE: try again here. NOT_COORDINATOR: look for the coordinator anew.
    """
    return _TOLD.get(code, ErrorCode.NOT_COORDINATOR)


def append_error(error: KlogError) -> ErrorCode:
    """What clients of a coordinator are told for an error that :meth:`StateLog.append` raised."""
    if isinstance(error, RecordTooLarge | RecordBatchTooLarge):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if isinstance(error, InvalidProducerEpoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return told(error.code) if isinstance(error, BrokerError) else ErrorCode.NOT_COORDINATOR


def wants_descriptor(error: BaseException) -> bool:
    """Whether reading failed only because no file descriptor was left: try again later."""
    return isinstance(error, OutOfDescriptors) or (
        isinstance(error, OSError) and is_exhausted(error)
    )
