"""RecordChecks: the interface that scans batches, and validates and rewrites records.

Both implementations find the same batches and faults, and write the same records
(tests/property/test_record_checks.py).
plain_checks.py needs no numba and is used from start-up on; kernel_checks.py replaces it once the
kernels are loaded (``LogManager.checks``).
"""

from typing import NamedTuple, Protocol

from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.errors import RecordTooLarge
from klog_broker.log.validation.batch_digests import Digest
from pyspark_klog.records.errors import InvalidRecords, RecordsError
from pyspark_klog.records.kernels import status
from pyspark_klog.records.layout import Buffer

MAX_RECORDS = 4 * 1024 * 1024
"""The broker refuses a compressed batch or message set with more records than this. A
compressed batch of 1 MiB whose records have ascending offsets holds at most about 1.5 million of
the smallest records (decision 14)."""

NAMED_FAULTS = 100
"""The most faulty records that the error for a batch lists (KIP-467). If more records are faulty,
the error only counts the remaining ones."""


class Allowed(NamedTuple):
    """The limits for each record of a batch. A timestamp of -1 is always within the bounds."""

    earliest_ms: int
    latest_ms: int
    is_append_time: bool  # LogAppendTime: the broker sets the time, so any timestamp is allowed
    key_required: bool
    max_message_bytes: int


class Fault(NamedTuple):
    """The fault of one record, by the record's index in the batch.

    ``kind`` is MISSES_KEY, TIMESTAMP_OUT_OF_RANGE or CLAIMS_APPEND_TIME.
    """

    record: int
    kind: int
    timestamp_ms: int


class RecordSummary(NamedTuple):
    """The result of look_at_records or look_at_messages: the number of the records, their faults,
    and their size in bytes once write_records or write_messages has rewritten them."""

    end_position: int
    record_count: int
    size_bytes: int
    # Whether the offset delta of each record is the record's index in the batch. False for messages
    # of format 0 or 1, which have no offset deltas.
    in_order: bool
    first_timestamp_ms: int
    least_timestamp_ms: int
    max_timestamp_ms: int
    key_faults: int
    timestamp_faults: int
    # The offset field of the last message of format 0 or 1; -1 after look_at_records.
    last_offset: int
    faults: tuple[Fault, ...]  # at most the first NAMED_FAULTS faults


class Wrapper(NamedTuple):
    """The compressed message of format 0 or 1 whose value is a set of messages."""

    magic: int
    # If the wrapper's timestamp type is LogAppendTime, the timestamp of all messages in it; None if
    # each message has its own timestamp.
    timestamp_ms: int | None


class ScanResult(NamedTuple):
    """The result of RecordChecks.scan: the valid batches, and the position after the last one."""

    rows: list[BatchRow]
    end_position: int
    # True if the scan stopped only because it had found the most batches that one call returns; the
    # caller then scans again from end_position.
    is_partial: bool


class WalkResult(NamedTuple):
    """The result of RecordChecks.walk for a batch whose records are all valid."""

    max_timestamp_ms: int
    max_timestamp_record: int  # the index of the first record with max_timestamp_ms


class NotInOrder(InvalidRecords):
    """RecordChecks.walk found a record whose offset delta is not its index in the batch."""


class RecordNotAllowed(InvalidRecords):
    """RecordChecks.walk found a record without a required key, or with a timestamp outside the
    bounds that were passed to ``walk``.

    The error names one record. Call look_at_records to find all such records of the batch.
    """


class RecordChecks(Protocol):
    """Scans batches, and validates and rewrites records. Implementations have no state, because the
    event loop and helper threads use the same instance concurrently."""

    work_per_record: int
    """The cost of reading one record, as the number of bytes decompressed in the same time."""

    # --- scans of stored or fetched batches ------------------------------------------------------
    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> ScanResult:
        """Find the valid batches from ``start`` on, including messages of format 0 or 1.

        Checks the length, magic, last offset and record count of each batch, and with ``check_crc``
        its CRC, but not its records. The scan stops at the first batch that is not valid or that
        ends after ``end``, or after some thousand batches.
        """

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        """Scan ``buffer``, and add the batches to ``digest``, the summary that the caller needs.

        ``shift`` is the position in the file at which ``buffer`` begins. The scan stops at the
        first bad or incomplete batch, and at a batch that the digest refuses (``digest.is_cut``),
        for example because the batch begins below the end offset of the batches before it.
        """

    # --- the check of records that are stored as they arrived ------------------------------------
    def walk(
        self,
        section: Buffer,
        start: int,
        end: int,
        count: int,
        base_timestamp_ms: int,
        earliest_ms: int,
        latest_ms: int,
        key_required: bool,
    ) -> WalkResult:
        """Check that ``section[start:end]`` is exactly ``count`` well-formed records with offset
        deltas 0, 1, 2 ..., with keys if required, and with timestamps of -1 or within the bounds.

        Raises CorruptRecords, NotInOrder or RecordNotAllowed.
        """

    # --- the two passes that rewrite records or messages -----------------------------------------
    def look_at_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        count: int,
        base_timestamp_ms: int,
        allowed: Allowed,
        *,
        claims_append_time: bool,
    ) -> RecordSummary:
        """Measure the ``count`` records in ``section[start:end]`` before they are rewritten, and
        find those that ``allowed`` forbids, such as records without a required key.

        The records may have any offset deltas. ``claims_append_time`` is true if the batch's
        timestamp type is LogAppendTime: the timestamp of each record is then ``base_timestamp_ms``.
        Raises CorruptRecords if the bytes of a record cannot be decoded.
        """

    def write_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        found: RecordSummary,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview:
        """Return the records again, with offset deltas 0, 1, 2 ...; ``found`` is the result of
        :meth:`look_at_records` for the same section.

        The result begins with 61 bytes, in which the caller writes a batch header. The records keep
        their timestamp deltas, unless the batch's timestamp type is LogAppendTime
        (``claims_append_time``): then all timestamp deltas are 0.
        """

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> RecordSummary:
        """Measure the uncompressed messages of format 0 or 1 in ``buffer`` before they are
        rewritten as records, and find those that ``allowed`` forbids.

        ``wrapper`` is the compressed message that contained ``buffer``, or None. Without a wrapper,
        an incomplete message at the end is ignored. Raises CorruptRecords if a message cannot be
        decoded; InvalidRecords if, for example, a message is compressed or of another format than
        the others; DecompressedTooLarge if there are more than ``max_records`` messages; and
        RecordTooLarge if a message without a wrapper is larger than max.message.bytes.
        """

    def write_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, found: RecordSummary
    ) -> bytearray | memoryview:
        """Return the messages as records of format 2 with offset deltas 0, 1, 2 ...; ``found`` is
        the result of :meth:`look_at_messages` for the same buffer.

        The result begins with 61 bytes, in which the caller writes a batch header. The timestamp
        deltas are relative to the first message's timestamp.
        """


def message_error(
    wrong: int, position: int, number: int, allowed: Allowed
) -> RecordsError | RecordTooLarge:
    """Return the exception for a faulty message; ``wrong`` is the fault, a number of
    pyspark_klog.records.kernels.status."""
    where = f"message {number} of the set, at byte {position}"
    if wrong == status.MESSAGE_TOO_LARGE:
        return RecordTooLarge(f"{where}: larger than max.message.bytes={allowed.max_message_bytes}")
    return status.error_for(wrong, where)
