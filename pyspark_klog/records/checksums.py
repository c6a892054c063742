"""The checksums of the record formats: CRC-32C (Castagnoli) in v2, CRC-32 (IEEE) in v0 and v1."""

import zlib

from crc32c import crc32c as _crc32c

from pyspark_klog.records.layout import Buffer


def crc32c(data: Buffer, before: int = 0) -> int:
    """Return the CRC-32C of ``data`` as an unsigned 32-bit number.

    ``before`` is the CRC-32C of preceding bytes: the result then covers those bytes and ``data``.
    """
    return int(_crc32c(data, before))


def crc32(data: Buffer, before: int = 0) -> int:
    """Return the CRC-32 of ``data`` as an unsigned 32-bit number.

    ``before`` is the CRC-32 of preceding bytes: the result then covers those bytes and ``data``.
    """
    return zlib.crc32(data, before)
