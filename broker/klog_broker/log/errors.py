"""Exceptions of the log package.

The docstring of an exception that a request can get as an error names the Kafka error; produce/ and
api/ hold the error codes. Appending also raises exceptions of pyspark_klog.records:
DamagedCompression (UNKNOWN_SERVER_ERROR), other CorruptRecords (CORRUPT_MESSAGE), InvalidRecords
(INVALID_RECORD), UnsupportedCodec (UNSUPPORTED_COMPRESSION_TYPE), DecompressedTooLarge
(MESSAGE_TOO_LARGE).
"""

from collections.abc import Callable

from pyspark_klog.errors import InvariantViolation, KlogError
from pyspark_klog.records.errors import InvalidRecords


class LogError(KlogError):
    """Base class of the log package's errors."""


class OffsetOutOfRange(LogError):
    """The offset is before the log start offset or past the log's end (OFFSET_OUT_OF_RANGE)."""


class RecordTooLarge(LogError):
    """A batch is larger than max.message.bytes (MESSAGE_TOO_LARGE)."""


class RecordBatchTooLarge(LogError):
    """The batches of one append do not fit into a segment (RECORD_LIST_TOO_LARGE)."""


class RecordError(KlogError):
    """Why one record is invalid: an element of ``record_errors``, never raised (KIP-467)."""

    def __init__(self, batch_index: int, message: str) -> None:
        super().__init__(message)
        self.batch_index = batch_index
        self.message = message


class RecordsRefused(InvalidRecords):
    """Some records are invalid (INVALID_RECORD); ``record_errors`` says why each one is."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidTimestamp(RecordsRefused):
    """Some records are invalid, and each of them only because its timestamp is out of bounds or has
    the wrong type (INVALID_TIMESTAMP)."""


class InvalidProducerEpoch(LogError):
    """The log has already seen a newer epoch of the producer, or, for a marker from transaction
    version 2 on, the same epoch with an open transaction (INVALID_PRODUCER_EPOCH)."""


class OutOfOrderSequence(LogError):
    """The batch has neither the producer's next sequence number nor those of one of the producer's
    last five batches (OUT_OF_ORDER_SEQUENCE_NUMBER)."""


class InvalidTransactionState(LogError):
    """A transactional batch whose transaction the coordinator has not verified, or a
    non-transactional batch of a producer that has a transaction open (INVALID_TXN_STATE)."""


class CoordinatorFenced(LogError):
    """A transaction marker comes from an older coordinator epoch than the producer's last marker
    (TRANSACTION_COORDINATOR_FENCED)."""


class StaleLeaderEpoch(LogError):
    """The leader epoch of an append is older than the newest one of the log or of the fetched
    batches (NOT_LEADER_OR_FOLLOWER)."""


class LogStorageError(LogError):
    """An operation on the disk failed, or the data directory is offline (KAFKA_STORAGE_ERROR)."""


class LoadingCancelled(LogError):
    """Loading of the logs was cancelled, because the broker was asked to stop during start-up."""


class OutOfDescriptors(LogStorageError):
    """A file could not be opened, because the limit of open files is reached. The disk is fine."""


class DiskFull(LogStorageError):
    """The disk is full. The failed operation had no effect, and the directory stays online."""


class LogDirectoryError(LogError):
    """A data directory cannot be used, for example because it is locked, unreadable or damaged,
    belongs to another broker or cluster, or has folders of partitions that the metadata lacks."""


class InconsistentTopicId(LogError):
    """The partition's folder already exists and belongs to a topic with the same name and another
    id, or, for a log that is to be made, is not empty (INCONSISTENT_TOPIC_ID)."""


def remove_tracebacks(error: BaseException) -> BaseException:
    """Remove the tracebacks from the error and its causes, and return the error. Call before
    storing an error: a traceback keeps the local variables of its frames alive, and with them open
    files."""
    chained: BaseException | None = error
    while chained is not None:
        chained.__traceback__ = None
        chained = chained.__cause__ or chained.__context__
    return error


class DamagedLog(InvariantViolation):
    """A segment has no valid batch at a position where a batch must be, or a wrong row in an index,
    because a file was changed or lost bytes (CORRUPT_MESSAGE)."""


class ColdRead(Exception):
    """Signals, without a failure, that a read needs pages which are not in the page cache.

    The caller runs ``warm`` in a helper thread, then repeats the read with ``may_block=True``,
    because pages can leave the cache in between. Raised only if ``may_block`` is False.
    """

    def __init__(self, warm: Callable[[], object]) -> None:
        super().__init__("the pages to read are not in the page cache")
        self.warm = warm


class LongLookUp(Exception):
    """Signals, without a failure, that to find the offset for a timestamp takes long: a batch must
    be decompressed, or many records or batch headers must be read.

    The caller runs ``search`` in a helper thread: ``search`` returns the TimestampOffset, or None
    if it failed or found no matching record. After None, look for the timestamp again with
    ``may_block=True``. Raised only if ``may_block`` is False.
    """

    def __init__(self, search: Callable[[], object]) -> None:
        super().__init__("the offset for a timestamp can only be found by a long search")
        self.search = search


class ShortWrite(OSError):
    """A write stored fewer bytes than it was given, because the disk is full. Only klog_broker.log
    and compaction handle this error: requests get DiskFull."""

    def __init__(self, written: int, expected: int) -> None:
        super().__init__(f"only {written} of {expected} bytes could be written")
