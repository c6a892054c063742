"""The interface of the checks of batches and their records, and of writing records in a new form.

Two implementations give the same result for the same bytes (tests/property/test_record_checks.py):
plain_checks.py needs no numba and serves from the first moment; kernel_checks.py takes over once
the kernels are loaded (``LogManager.checks``).
"""

from typing import NamedTuple, Protocol

from klog_broker.log.batch_rows import BatchRow
from klog_broker.log.errors import RecordTooLarge
from klog_broker.log.validation.batch_digests import Digest
from pyspark_klog.records.errors import InvalidRecords, RecordsError
from pyspark_klog.records.kernels import status
from pyspark_klog.records.layout import Buffer

MAX_RECORDS = 4 * 1024 * 1024
"""How many records one compressed batch, or a set of old messages, may have. A batch of 1 MiB with
the usual record numbers holds about half as many of the smallest records, in the best codec."""

NAMED_FAULTS = 100
"""How many faulty records an answer names (KIP-467); the others are only counted."""


class Allowed(NamedTuple):
    """The limits for single records."""

    earliest_ms: int
    latest_ms: int
    is_append_time: bool  # the broker sets the time, so that any timestamp is allowed
    key_required: bool
    max_message_bytes: int


class Fault(NamedTuple):
    """A record's fault; ``kind``: MISSES_KEY, TIMESTAMP_OUT_OF_RANGE or CLAIMS_APPEND_TIME."""

    record: int
    kind: int
    timestamp_ms: int


class Look(NamedTuple):
    """The result of a first pass over records: their number, their size in the stored form, and
    their faults."""

    end_position: int
    record_count: int
    size_bytes: int
    in_order: bool  # of records: whether each one's offset delta is its number
    first_timestamp_ms: int
    least_timestamp_ms: int
    max_timestamp_ms: int
    key_faults: int
    timestamp_faults: int
    last_offset: int  # of messages: the last one's, as stored
    faults: tuple[Fault, ...]  # the first NAMED_FAULTS ones


class Wrapper(NamedTuple):
    """The compressed message that messages were in."""

    magic: int
    # The timestamp of all messages in the wrapper, if it claims append time.
    timestamp_ms: int | None


class Scan(NamedTuple):
    """The result of a scan: good batches, and the end of the last one."""

    rows: list[BatchRow]
    end_position: int
    # Whether the scan must go on from end_position: it reached neither the end nor a fault.
    is_partial: bool


class Walk(NamedTuple):
    """The result of a walk over a batch's records, if all of them are good."""

    max_timestamp_ms: int
    max_timestamp_record: int  # the first record that has it, by its number in the batch


class NotInOrder(InvalidRecords):
    """A record's offset delta is not its number in the batch."""


class RecordNotAllowed(InvalidRecords):
    """A record lacks its key or has a timestamp out of bounds; ``look_at_records`` finds all."""


class RecordChecks(Protocol):
    """Checks batches, and validates and rewrites records. Implementations have no state: the loop
    and helper threads use one at the same time."""

    work_per_record: int
    """The cost of reading a record, in bytes that could be inflated in the same time."""

    # --- batches ---------------------------------------------------------------------------------
    def scan(self, buffer: Buffer, start: int, end: int, *, check_crc: bool = True) -> Scan:
        """Check length, magic, CRC and counts of each batch and message from ``start`` on. The scan
        stops at the first one that is bad or cut off by ``end``, or after some thousands."""

    def scan_into(
        self, digest: Digest, buffer: Buffer, shift: int, *, check_crc: bool = True
    ) -> None:
        """Scan all of ``buffer``, which lies at ``shift`` in its file, for a digest."""

    # --- records, as they came -------------------------------------------------------------------
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
    ) -> Walk:
        """Check that ``section[start:end]`` is exactly ``count`` well-formed records, numbered from
        0, with keys if required, and with timestamps of -1 or within the bounds.

        Raises CorruptRecords, NotInOrder or RecordNotAllowed.
        """

    # --- records, to be written in a new form ----------------------------------------------------
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
    ) -> Look:
        """Find the faults and the size of the ``count`` records in ``section[start:end]``, which
        may have any offset deltas. If the batch claims append time each record has
        ``base_timestamp_ms``. CorruptRecords if a record is malformed."""

    def write_records(
        self,
        section: Buffer,
        start: int,
        end: int,
        found: Look,
        *,
        claims_append_time: bool,
    ) -> bytearray | memoryview:
        """Write the records of :meth:`look_at_records` numbered from 0, after 61 bytes for a batch
        header. The timestamp deltas stay, or are 0 if the batch claims append time."""

    def look_at_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, allowed: Allowed, max_records: int
    ) -> Look:
        """Find the faults and the size of the messages in ``buffer``: formats 0 and 1, with correct
        CRCs, not compressed, at most ``max_records``. Without a wrapper an incomplete message at
        the end is ignored.

        Raises CorruptRecords, InvalidRecords, DecompressedTooLarge, RecordTooLarge.
        """

    def write_messages(
        self, buffer: Buffer, wrapper: Wrapper | None, found: Look
    ) -> bytearray | memoryview:
        """Write the messages of :meth:`look_at_messages` as records numbered from 0, after 61 bytes
        for a batch header. The timestamp deltas count from the first message's timestamp."""


def message_error(
    wrong: int, position: int, number: int, allowed: Allowed
) -> RecordsError | RecordTooLarge:
    """The exception for a message's fault, by the fault's status."""
    where = f"message {number} of the set, at byte {position}"
    if wrong == status.MESSAGE_TOO_LARGE:
        return RecordTooLarge(f"{where}, max.message.bytes is {allowed.max_message_bytes}")
    return status.error_for(wrong, where)
