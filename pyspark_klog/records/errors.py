"""What reading and writing of records can raise. Only handlers know the numbers on the wire."""

from pyspark_klog.errors import KlogError


class RecordsError(KlogError):
    """Root of this room: whatever the bytes are, reading them raises a subclass of this."""


class CorruptRecords(RecordsError):
    """A length, count, varint, magic or CRC does not fit the bytes (CORRUPT_MESSAGE)."""


class DamagedCompression(CorruptRecords):
    """Compressed bytes that their codec cannot inflate (from Produce: UNKNOWN_SERVER_ERROR, as from
    Kafka; Java's client does not retry that, as it does CORRUPT_MESSAGE)."""


class InvalidRecords(RecordsError):
    """The bytes can be read, but say something that is not allowed (INVALID_RECORD)."""


class UnsupportedCodec(RecordsError):
    """An unknown codec, or one that the format cannot hold (UNSUPPORTED_COMPRESSION_TYPE)."""


class DecompressedTooLarge(RecordsError):
    """Inflating would pass the limit, which the text names; stopped there (MESSAGE_TOO_LARGE)."""


class BatchTooLarge(RecordsError):
    """A record does not fit into the batch or set being built; nothing was added to it."""
