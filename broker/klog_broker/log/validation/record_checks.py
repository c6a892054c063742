"""RecordChecks: the interface that scans batches, and validates and rewrites records.

Both implementations return the same results (tests/property/test_record_checks.py).
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
"""The most records of one compressed batch or message set. A 1 MiB batch of the smallest records,
with offset deltas 0, 1, 2 ... and the best codec, holds about half as many."""

NAMED_FAULTS = 100
"""The most faulty records that an error names (KIP-467); the others are only counted."""


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
    """The result of a first pass over records: their number, their size in the stored form, and
    their faults."""

    end_position: int
    record_count: int
    size_bytes: int
    in_order: bool  # Whether each offset delta is the index of its record; False for v0 and v1.
    first_timestamp_ms: int
    least_timestamp_ms: int
    max_timestamp_ms: int
    key_faults: int
    timestamp_faults: int
    last_offset: int  # The offset field of the last message; -1 for records.
    faults: tuple[Fault, ...]  # at most the first NAMED_FAULTS faults


class Wrapper(NamedTuple):
    """The compressed message that contains the messages of a set."""

    magic: int
    # The timestamp of all messages in a wrapper with timestamp type LogAppendTime, else None.
    timestamp_ms: int | None


class ScanResult(NamedTuple):
    """The result of a scan: valid batches, and the position at which the last one ends."""

    rows: list[BatchRow]
    end_position: int
    # True if the scan stopped only because of the number of rows: scan again from end_position.
    is_partial: bool


class WalkResult(NamedTuple):
    """The result of a walk over the records of a batch, all of which are valid."""

    max_timestamp_ms: int
    max_timestamp_record: int  # the index of the first record with max_timestamp_ms


class NotInOrder(InvalidRecords):
    """The offset delta of a record is not the record's index in the batch."""


class RecordNotAllowed(InvalidRecords):
    """A record lacks a key or has a timestamp out of bounds; look_at_records finds all of them."""


class RecordChecks(Protocol):
    """Scans batches, and validates and rewrites records. Implementations have no state, because the
    event loop and helper threads use the same instance concurrently."""

    work_per_record: int
    """The cost of reading one record, as the number of bytes decompressed in the same time."""

    # --- batches ---------------------------------------------------------------------------------
    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> ScanResult:
        """Check length, magic, CRC and counts of each batch and message from ``start`` on. The scan
        stops at the first entry that is bad or cut off by ``end``, or after some thousand
        entries."""

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        """Scan ``buffer``, which begins at position ``shift`` of its file, and add the batches to
        the digest. Stops at the first bad or incomplete batch, and once the digest is cut."""

    # --- records in the form in which they arrived -----------------------------------------------
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

    # --- records that are rewritten --------------------------------------------------------------
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
        """Find the faults and the size of the ``count`` records in ``section[start:end]``, with any
        offset deltas. With ``claims_append_time`` the timestamp of each record is
        ``base_timestamp_ms``. CorruptRecords if a record is malformed."""

    def write_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        found: RecordSummary,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview:
        """Write the records of :meth:`look_at_records` with offset deltas 0, 1, 2 ..., after 61
        bytes for a batch header. Timestamp deltas stay, or are 0 with ``claims_append_time``."""

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> RecordSummary:
        """Find the faults and the stored size of the uncompressed messages of format 0 or 1 in
        ``buffer``, at most ``max_records``. Without a wrapper, an incomplete message at the end is
        ignored.

        Raises CorruptRecords, InvalidRecords, DecompressedTooLarge, RecordTooLarge.
        """

    def write_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, found: RecordSummary
    ) -> bytearray | memoryview:
        """Write the messages of :meth:`look_at_messages` as records with offset deltas 0, 1, 2 ...,
        after 61 bytes for a batch header. The base timestamp is the first message's timestamp."""


def message_error(
    wrong: int, position: int, number: int, allowed: Allowed
) -> RecordsError | RecordTooLarge:
    """Return the exception for a faulty message, from the status number of the fault."""
    where = f"message {number} of the set, at byte {position}"
    if wrong == status.MESSAGE_TOO_LARGE:
        return RecordTooLarge(f"{where}, max.message.bytes is {allowed.max_message_bytes}")
    return status.error_for(wrong, where)
