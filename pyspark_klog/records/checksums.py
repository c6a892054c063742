"""The two checksums of the formats: CRC-32C (Castagnoli) for v2, CRC-32 (IEEE) for v0 and v1."""

import zlib

from crc32c import crc32c as _crc32c

from pyspark_klog.records.layout import Buffer


def crc32c(data: Buffer, before: int = 0) -> int:
    """CRC-32C of all of ``data``, behind what has the CRC-32C ``before``, as an unsigned number."""
    return int(_crc32c(data, before))


def crc32(data: Buffer, before: int = 0) -> int:
    """CRC-32 of all of ``data``, behind what has the CRC-32 ``before``, as an unsigned number."""
    return zlib.crc32(data, before)
