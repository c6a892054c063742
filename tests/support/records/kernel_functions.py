"""Small kernels around the functions that only kernels can call, so that tests can."""

from pyspark_klog.records.kernels import crc
from pyspark_klog.records.kernels.jit import Array, kernel
from pyspark_klog.records.kernels.partition import murmur2_of
from pyspark_klog.records.kernels.records import is_utf8


@kernel("in8", "i64", "i64", "i64")
def crc_of(buf: Array, start: int, end: int, kind: int) -> int:
    """CRC-32C (kind 0: as chosen, 1: by table) or CRC-32 (2) of a part of ``buf``."""
    if kind == 0:
        return crc.crc32c(buf, start, end)
    if kind == 1:
        return crc.crc32c_by_table(buf, start, end)
    return crc.crc32(buf, start, end)


@kernel("in8", "i64", "i64")
def murmur2_between(buf: Array, start: int, end: int) -> int:
    """Kafka's hash of a part of ``buf``, unsigned."""
    return murmur2_of(buf, start, end)


@kernel("in8", "i64", "i64")
def utf8_between(buf: Array, start: int, end: int) -> int:
    """1 if a part of ``buf`` is UTF-8."""
    return 1 if is_utf8(buf, start, end) else 0
