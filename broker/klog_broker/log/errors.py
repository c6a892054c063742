"""The errors of the log. Only the handlers know Kafka's numbers for them.

Appending also raises the exceptions of pyspark_klog.records: DamagedCompression
(UNKNOWN_SERVER_ERROR), other CorruptRecords (CORRUPT_MESSAGE), InvalidRecords (INVALID_RECORD),
UnsupportedCodec (UNSUPPORTED_COMPRESSION_TYPE), DecompressedTooLarge (MESSAGE_TOO_LARGE).
"""

from collections.abc import Callable

from pyspark_klog.errors import InvariantViolation, KlogError
from pyspark_klog.records.errors import InvalidRecords


class LogError(KlogError):
    """Root of this room."""


class OffsetOutOfRange(LogError):
    """The offset lies before the log's start or past its end (OFFSET_OUT_OF_RANGE)."""


class RecordTooLarge(LogError):
    """A batch is larger than max.message.bytes (MESSAGE_TOO_LARGE)."""


class RecordBatchTooLarge(LogError):
    """The batches to be appended do not fit into a segment (RECORD_LIST_TOO_LARGE)."""


class RecordError(KlogError):
    """One record's fault; not raised, listed in ``record_errors`` (KIP-467)."""

    def __init__(self, batch_index: int, message: str) -> None:
        super().__init__(message)
        self.batch_index = batch_index
        self.message = message


class RecordsRefused(InvalidRecords):
    """Some records are not allowed (INVALID_RECORD); ``record_errors`` says which and why."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidTimestamp(RecordsRefused):
    """All faults are timestamps out of bounds or of the wrong type (INVALID_TIMESTAMP)."""


class UnsupportedForMessageFormat(LogError):
    """The records' format lacks a feature that they need (UNSUPPORTED_FOR_MESSAGE_FORMAT)."""


class InvalidProducerEpoch(LogError):
    """The producer's epoch is older than the newest one seen (INVALID_PRODUCER_EPOCH)."""


class OutOfOrderSequence(LogError):
    """Neither the next sequence of the producer nor a known duplicate
    (OUT_OF_ORDER_SEQUENCE_NUMBER)."""


class InvalidTransactionState(LogError):
    """A transactional batch of no transaction that the coordinator knows, or another one within a
    transaction (INVALID_TXN_STATE)."""


class CoordinatorFenced(LogError):
    """A newer transaction coordinator has ended a transaction of the producer
    (TRANSACTION_COORDINATOR_FENCED)."""


class StaleLeaderEpoch(LogError):
    """The leader epoch is older than the newest one that the log knows (NOT_LEADER_OR_FOLLOWER)."""


class LogStorageError(LogError):
    """The disk refused, or the directory is offline (KAFKA_STORAGE_ERROR)."""


class LoadingGivenUp(LogError):
    """The logs are not wanted any more: the broker is to stop while it starts."""


class OutOfDescriptors(LogStorageError):
    """A file could not be opened, for this process has too many open; nothing else is wrong."""


class NoRoomLeft(LogStorageError):
    """The disk is full; nothing else is wrong, and the operation has left nothing behind."""


class LogDirectoryError(LogError):
    """A data directory cannot be used: of another version, cluster or broker, or in use."""


class InconsistentTopicId(LogError):
    """The directory on disk belongs to another topic of the same name (INCONSISTENT_TOPIC_ID)."""


def forget_frames(error: BaseException) -> BaseException:
    """Return the error without tracebacks, for an object that keeps the error: a traceback holds
    the variables of its frames, which include open files."""
    chained: BaseException | None = error
    while chained is not None:
        chained.__traceback__ = None
        chained = chained.__cause__ or chained.__context__
    return error


class DamagedLog(InvariantViolation):
    """There is no batch where one must be: the file was changed or lost bytes (CORRUPT_MESSAGE)."""


class ColdRead(Exception):
    """Not a fault: the answer has to wait for the disk.

    Run ``warm`` in a helper thread, then ask again with ``may_block=True`` (pages can leave the
    cache in between). Raised only where ``may_block`` is False.
    """

    def __init__(self, warm: Callable[[], object]) -> None:
        super().__init__("not in the page cache")
        self.warm = warm


class LongLookUp(Exception):
    """Not a fault: to answer, records have to be inflated, or many records read.

    Run ``search`` in a helper thread: it returns the TimestampOffset, or None if the batch has no
    such record after all; then ask again with ``may_block=True``. Raised only with
    ``may_block=False``.
    """

    def __init__(self, search: Callable[[], object]) -> None:
        super().__init__("records have to be looked at")
        self.search = search


class ShortWrite(OSError):
    """Fewer bytes were written than given: the disk is full. Stays within this room."""

    def __init__(self, written: int, expected: int) -> None:
        super().__init__(f"only {written} of {expected} bytes could be written")
