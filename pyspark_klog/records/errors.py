"""Exceptions of reading and writing records; request handlers map them to Kafka's error codes."""

from pyspark_klog.errors import KlogError


class RecordsError(KlogError):
    """Base class of the exceptions of `pyspark_klog.records`. Bytes that cannot be read as records
    always raise a subclass."""


class CorruptRecords(RecordsError):
    """A length, count, varint, magic or CRC contradicts the bytes (CORRUPT_MESSAGE)."""


class DamagedCompression(CorruptRecords):
    """A codec cannot inflate the compressed bytes.

    Produce answers UNKNOWN_SERVER_ERROR, like Kafka. Java's client does not retry that error, while
    it would retry CORRUPT_MESSAGE.
    """


class InvalidRecords(RecordsError):
    """The bytes are readable, but a value in them is not allowed (INVALID_RECORD)."""


class UnsupportedCodec(RecordsError):
    """The codec is unknown, or the record format cannot hold it (UNSUPPORTED_COMPRESSION_TYPE)."""


class DecompressedTooLarge(RecordsError):
    """The inflated bytes would exceed the limit that the error text names (MESSAGE_TOO_LARGE).

    Inflating stops at the limit.
    """


class BatchTooLarge(RecordsError):
    """A record does not fit into the batch or message set that is being built.

    The batch or set is left as it was before.
    """
