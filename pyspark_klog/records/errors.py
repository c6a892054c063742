"""Exceptions of reading and writing records; request handlers map them to Kafka's error codes."""

from pyspark_klog.errors import KlogError


class RecordsError(KlogError):
    """Base class of the exceptions of `pyspark_klog.records`. The functions that read records raise
    a subclass for bytes that they cannot read."""


class CorruptRecords(RecordsError):
    """A length, count, varint, magic or CRC contradicts the bytes (CORRUPT_MESSAGE)."""


class DamagedCompression(CorruptRecords):
    """A codec cannot inflate the compressed bytes.

    Produce answers UNKNOWN_SERVER_ERROR, like Kafka. Java's client does not retry that error, while
    it would retry CORRUPT_MESSAGE.
    """


class InvalidRecords(RecordsError):
    """A value is not allowed in records: in readable bytes, or to be written (INVALID_RECORD)."""


class UnsupportedCodec(RecordsError):
    """The codec is unknown, or the record format cannot hold it (UNSUPPORTED_COMPRESSION_TYPE)."""


class DecompressedTooLarge(RecordsError):
    """Records exceed a limit on inflated bytes, on the bytes of a message, or on the number of
    records, compressed frames or blocks (MESSAGE_TOO_LARGE).

    Inflating stops when the limit is exceeded.
    """


class BatchTooLarge(RecordsError):
    """A record does not fit into the batch or message set that is being built, or the finished
    batch is longer than its length field can express.

    A record that does not fit leaves the batch or set as it was before.
    """
