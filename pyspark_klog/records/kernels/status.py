"""Status numbers of kernels, and the exceptions for errors in records.

Kernels raise no exceptions: the caller of a kernel raises the one that ``error_for`` returns for
the status. The ROW_* numbers, which say why a row is not encoded, have no exception.
"""

from pyspark_klog.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    RecordsError,
)

OK = 0
FULL = 1  # no error: an output array is full, or a limit of bytes is reached; call the kernel again
INCOMPLETE = 2  # the kernel's input ends inside a batch or message; no error in a Fetch response
NOT_PLAIN = 3  # no error: the next batch or message has a codec, and the caller must inflate it

BAD_LENGTH = 10
BAD_MAGIC = 11
BAD_CRC = 12
BAD_COUNT = 13
BAD_LAST_OFFSET = 14

BAD_NUMBER = 20
BAD_RECORD_LENGTH = 21
BAD_KEY_LENGTH = 22
BAD_VALUE_LENGTH = 23
BAD_HEADER_COUNT = 24
BAD_HEADER_KEY_LENGTH = 25
BAD_HEADER_VALUE_LENGTH = 26
BAD_RECORD_END = 27
BAD_SECTION_END = 28
BAD_HEADER_KEY = 29
OFFSET_OVERFLOW = 30
TIMESTAMP_OVERFLOW = 31
TIMESTAMP_NOT_IN_MICROSECONDS = 32

OFFSET_DELTA_NOT_INDEX = 40
MISSING_KEY = 41
TIMESTAMP_NOT_ALLOWED = 42
COMPRESSED_AMONG_OTHERS = 43
MIXED_FORMATS = 44
MESSAGE_TOO_LARGE = 45
TOO_MANY_RECORDS = 46

# Kinds of the faults of single records: ``measure_records`` and ``measure_messages`` count and list
# them in arrays, and do not return them as a status.
MISSES_KEY = 0
TIMESTAMP_OUT_OF_RANGE = 1
CLAIMS_APPEND_TIME = 2

ROW_TOO_LARGE = 50
ROW_BAD_PARTITION = 51
ROW_NULL_HEADER_KEY = 52
ROW_BAD_TIMESTAMP = 53

OFFSETS_DO_NOT_RISE = 60
NEGATIVE_TIMESTAMP = 61
INNER_NOT_PLAIN = 62
BAD_WRAPPER_OFFSET = 63
INNER_CUT_OFF = 64


class MalformedTimestamp(InvalidRecords):
    """A record's timestamp does not fit Spark's microseconds (KAFKA_MALFORMED_RECORD_TIMESTAMP)."""


MESSAGES: dict[int, tuple[type[RecordsError], str]] = {
    INCOMPLETE: (CorruptRecords, "the bytes end inside the batch"),
    BAD_LENGTH: (CorruptRecords, "the batch's length is smaller than its own header"),
    BAD_MAGIC: (CorruptRecords, "the format (magic) is none of 0, 1 and 2"),
    BAD_CRC: (CorruptRecords, "the CRC does not fit the bytes"),
    BAD_COUNT: (CorruptRecords, "the record count does not fit the length of the records"),
    BAD_LAST_OFFSET: (CorruptRecords, "the last offset is negative or before the base offset"),
    BAD_NUMBER: (CorruptRecords, "a varint is cut off or too long"),
    BAD_RECORD_LENGTH: (
        CorruptRecords,
        "the record's length is negative or passes the batch's end",
    ),
    BAD_KEY_LENGTH: (CorruptRecords, "the key's length passes the record's end"),
    BAD_VALUE_LENGTH: (CorruptRecords, "the value's length passes the record's end"),
    BAD_HEADER_COUNT: (CorruptRecords, "the number of headers does not fit the record's length"),
    BAD_HEADER_KEY_LENGTH: (
        CorruptRecords,
        "a header key's length is negative or passes the record's end",
    ),
    BAD_HEADER_VALUE_LENGTH: (CorruptRecords, "a header value's length passes the record's end"),
    BAD_RECORD_END: (CorruptRecords, "the record's length is larger than its fields need"),
    BAD_SECTION_END: (CorruptRecords, "bytes are left behind the last record"),
    BAD_HEADER_KEY: (CorruptRecords, "a header key is not valid UTF-8"),
    OFFSET_OVERFLOW: (CorruptRecords, "the offset does not fit 64 bits"),
    TIMESTAMP_OVERFLOW: (CorruptRecords, "the timestamp does not fit 64 bits"),
    TIMESTAMP_NOT_IN_MICROSECONDS: (
        MalformedTimestamp,
        "KAFKA_MALFORMED_RECORD_TIMESTAMP: the timestamp in milliseconds overflows a 64-bit "
        "number of microseconds, expected at most 9223372036854775 ms from the epoch",
    ),
    OFFSET_DELTA_NOT_INDEX: (
        InvalidRecords,
        "the record's offset delta is not its place in the batch",
    ),
    MISSING_KEY: (InvalidRecords, "the record has no key, which a compacted topic needs"),
    TIMESTAMP_NOT_ALLOWED: (InvalidRecords, "the timestamp is outside of the accepted range"),
    OFFSETS_DO_NOT_RISE: (InvalidRecords, "the offsets of the records do not rise"),
    NEGATIVE_TIMESTAMP: (InvalidRecords, "a timestamp is negative: expected -1 (none) or more"),
    INNER_NOT_PLAIN: (
        InvalidRecords,
        "the wrapper holds no message, one of another format, or another wrapper",
    ),
    BAD_WRAPPER_OFFSET: (
        InvalidRecords,
        "the wrapper's offset is less than the relative one of its last message",
    ),
    INNER_CUT_OFF: (InvalidRecords, "the bytes in the wrapper end inside the message"),
    COMPRESSED_AMONG_OTHERS: (
        InvalidRecords,
        "a compressed message among others: a set holds one wrapper and nothing else, or plain "
        "messages only",
    ),
    MIXED_FORMATS: (
        InvalidRecords,
        "its format (magic) differs from that of its wrapper or of the other messages",
    ),
    MESSAGE_TOO_LARGE: (DecompressedTooLarge, "the message is larger than the limit"),
    TOO_MANY_RECORDS: (DecompressedTooLarge, "the set has more records than the limit"),
}


def error_for(status: int, where: str) -> RecordsError:
    """Return the exception for an error status; ``where`` names the batch and the record."""
    kind, text = MESSAGES[status]
    return kind(f"{where}: {text}")
