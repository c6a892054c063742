"""CRC-32C and CRC-32 for kernels.

When this module is loaded, it chooses the implementation of CRC-32C. Processors with a CRC-32C
instruction (SSE4.2, ARMv8) compute the CRCs of three blocks at the same time, and join them; other
processors use tables, eight bytes per step. CRC-32 always uses such tables. Without numba the C
libraries in records/checksums.py are called for both.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pyspark_klog.records import checksums
from pyspark_klog.records.kernels.jit import COMPILED, Array, inline
from pyspark_klog.records.kernels.memory import byte_at, load_i64, load_u32

_CASTAGNOLI = 0x82F63B78  # the polynomials of CRC-32C and CRC-32, bits reversed
_IEEE = 0xEDB88320
_MASK = 0xFFFF_FFFF
# The CRCs of three adjacent blocks of this size are computed at the same time; the size is a
# multiple of 8.
_BLOCK_BYTES = 1024


def _byte_table(polynomial: int) -> npt.NDArray[np.int64]:
    """Return the table of the bytewise CRC: the CRC register's change for each value of a byte.

    After the next byte of the data is XORed into the register, the new register is
    ``table[register & 0xFF] ^ (register >> 8)``.
    """
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, polynomial, 0)
    return table


def _slicing_tables(polynomial: int) -> npt.NDArray[np.int64]:
    """Return eight concatenated tables of 256 numbers for a CRC of eight bytes per step.

    Table k (0 to 7) gives the change of the CRC register by a byte that k zero bytes follow.
    """
    first = _byte_table(polynomial)
    tables = [first]
    for _ in range(7):
        tables.append(first[tables[-1] & 0xFF] ^ (tables[-1] >> 8))
    return np.concatenate(tables)


def _skip_tables(polynomial: int, count: int) -> npt.NDArray[np.int64]:
    """Return four concatenated tables of 256 numbers, one table for each byte of a CRC register.

    Each byte of the register selects a number of its table. The XOR of these four numbers is the
    register after ``count`` zero bytes.
    """
    first = _byte_table(polynomial)
    # At the end number i of ``columns`` is what ``count`` zero bytes make of the register 1 << i.
    columns = 1 << np.arange(32, dtype=np.int64)

    power = first[columns & 0xFF] ^ (columns >> 8)
    bits = np.arange(32)
    while count:
        if count & 1:
            columns = np.bitwise_xor.reduce(
                np.where(columns[:, None] >> bits & 1, power[None, :], 0), axis=1
            )
        power = np.bitwise_xor.reduce(
            np.where(power[:, None] >> bits & 1, power[None, :], 0), axis=1
        )
        count >>= 1
    values = np.arange(256)
    tables = [
        np.bitwise_xor.reduce(
            np.where(values[:, None] >> bits[:8] & 1, columns[None, 8 * k : 8 * k + 8], 0), axis=1
        )
        for k in range(4)
    ]
    return np.concatenate(tables)


_CASTAGNOLI_TABLES = _slicing_tables(_CASTAGNOLI)
_IEEE_TABLES = _slicing_tables(_IEEE)
_SKIP_BLOCK = _skip_tables(_CASTAGNOLI, _BLOCK_BYTES)


@inline
def crc32c_by_table(buf: Array, start: int, end: int) -> int:
    """Return the CRC-32C of ``buf[start:end]``, 0 to 2^32-1, computed with tables."""
    return _by_table(_CASTAGNOLI_TABLES, buf, start, end)


@inline
def crc32_by_table(buf: Array, start: int, end: int) -> int:
    """Return the CRC-32 (IEEE) of ``buf[start:end]``, 0 to 2^32-1."""
    return _by_table(_IEEE_TABLES, buf, start, end)


@inline
def _by_table(tables: Array, buf: Array, start: int, end: int) -> int:
    crc = _MASK
    at = start
    while end - at >= 8:
        low = load_u32(buf, at) ^ crc
        high = load_u32(buf, at + 4)
        crc = (
            tables[0x700 + (low & 0xFF)]
            ^ tables[0x600 + (low >> 8 & 0xFF)]
            ^ tables[0x500 + (low >> 16 & 0xFF)]
            ^ tables[0x400 + (low >> 24)]
            ^ tables[0x300 + (high & 0xFF)]
            ^ tables[0x200 + (high >> 8 & 0xFF)]
            ^ tables[0x100 + (high >> 16 & 0xFF)]
            ^ tables[high >> 24]
        )
        at += 8
    while at < end:
        crc = tables[(crc ^ byte_at(buf, at)) & 0xFF] ^ (crc >> 8)
        at += 1
    return int(crc) ^ _MASK


def _crc32c_by_instruction(buf: Array, start: int, end: int) -> int:
    first = _MASK
    at = start
    while end - at >= 3 * _BLOCK_BYTES:
        # A CRC instruction waits for the result of the previous one. The instructions of three
        # independent CRCs, one for each block, overlap.
        second = 0
        third = 0
        for word_at in range(at, at + _BLOCK_BYTES, 8):
            first = add_word(first, load_i64(buf, word_at))
            second = add_word(second, load_i64(buf, word_at + _BLOCK_BYTES))
            third = add_word(third, load_i64(buf, word_at + 2 * _BLOCK_BYTES))
        first = _skip_block(_skip_block(first) ^ second) ^ third
        at += 3 * _BLOCK_BYTES
    while end - at >= 8:
        first = add_word(first, load_i64(buf, at))
        at += 8
    while at < end:
        first = add_byte(first, byte_at(buf, at))
        at += 1
    return first ^ _MASK


@inline
def _skip_block(crc: int) -> int:
    return int(
        _SKIP_BLOCK[crc & 0xFF]
        ^ _SKIP_BLOCK[0x100 + (crc >> 8 & 0xFF)]
        ^ _SKIP_BLOCK[0x200 + (crc >> 16 & 0xFF)]
        ^ _SKIP_BLOCK[0x300 + (crc >> 24)]
    )


def _crc32c_plain(buf: Array, start: int, end: int) -> int:
    return checksums.crc32c(buf[start:end])


def _crc32_plain(buf: Array, start: int, end: int) -> int:
    return checksums.crc32(buf[start:end])


add_word: Callable[[int, int], int]
add_byte: Callable[[int, int], int]
crc32c: Callable[[Array, int, int], int]
"""``crc32c(buf, start, end)`` returns the CRC-32C of ``buf[start:end]``, 0 to 2^32-1."""
crc32: Callable[[Array, int, int], int]
"""``crc32(buf, start, end)`` returns the CRC-32 (IEEE) of ``buf[start:end]``, 0 to 2^32-1."""
INSTRUCTIONS = ""
"""The architecture whose CRC-32C instructions are used: ``x86``, ``arm`` or empty."""

if COMPILED:
    from pyspark_klog.records.kernels import intrinsics

    INSTRUCTIONS = intrinsics.CRC_INSTRUCTIONS
    add_word = intrinsics.crc32c_add_word
    add_byte = intrinsics.crc32c_add_byte
    crc32c = inline(_crc32c_by_instruction) if INSTRUCTIONS else crc32c_by_table
    crc32 = crc32_by_table
else:
    crc32c = _crc32c_plain
    crc32 = _crc32_plain
