"""Converts the Arrow columns of rows to be written into the arrays that klog's kernels (functions
that numba compiles) take.

The arrays of a binary column are the positions of the values (the start of the first value, then
the end of each value), the bytes of all values, and the validity bitmap. The function for each kind
of column raises InvalidRecords for a column of a wrong type.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_klog.records.errors import InvalidRecords

NO_BYTES = np.empty(0, np.uint8)
NO_ENDS = np.empty(0, np.int32)
# The difference of two timestamps from 0 to this value fits a record's timestamp delta, a varlong.
_MAX_TIMESTAMP_MS = 2**61
_UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class BytesColumn(NamedTuple):
    """The arrays of a binary column. An absent column has empty arrays.

    Value i is ``data[ends[i]:ends[i + 1]]``. Bit ``valid_from + i`` of ``valid`` is 0 for a null;
    an empty ``valid`` means that no value is null.
    """

    ends: npt.NDArray[np.int32] = NO_ENDS
    data: npt.NDArray[np.uint8] = NO_BYTES
    valid: npt.NDArray[np.uint8] = NO_BYTES
    valid_from: int = 0

    @property
    def size_bytes(self) -> int:
        return int(self.ends[-1]) - int(self.ends[0]) if len(self.ends) else 0


class HeaderColumn(NamedTuple):
    """The arrays of a list<struct<key, value>> column.

    Row i has the headers ``ends[i]`` to ``ends[i + 1]`` - 1 of ``keys`` and ``values``.
    """

    ends: npt.NDArray[np.int32] = NO_ENDS
    valid: npt.NDArray[np.uint8] = NO_BYTES
    valid_from: int = 0
    keys: BytesColumn = BytesColumn()
    values: BytesColumn = BytesColumn()


def bytes_column(name: str, column: pa.Array | None) -> BytesColumn:
    """Return the arrays of a binary or string column, also of Arrow's types with 64-bit offsets
    (large), with views or with values of a fixed size.

    ``name`` is the column's name, which error texts contain. A missing column (None) gives empty
    arrays, and so does a column of Arrow's null type. Only the value column is different: with the
    null type it becomes a binary column in which every value is null.
    """
    if column is None or pa.types.is_null(column.type):
        if name == "value" and column is not None:
            column = column.cast(pa.binary())
        else:
            return BytesColumn()
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        column = _as_binary(name, column)
    valid, ends, data = column.buffers()
    first = column.offset
    return BytesColumn(
        np.frombuffer(ends, np.int32)[first : first + len(column) + 1] if len(column) else NO_ENDS,
        np.frombuffer(data, np.uint8) if data is not None and data.size else NO_BYTES,
        *validity(column, valid),
    )


def _as_binary(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if (
        pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_fixed_size_binary(kind)
        or str(kind) in ("binary_view", "string_view")
    ):
        try:
            return column.cast(pa.string() if "string" in str(kind) else pa.binary())
        except pa.ArrowInvalid as error:
            raise InvalidRecords(
                f"column {name}: {error}; pass fewer rows per call, with at most 2 GiB in a column"
            ) from None
    raise InvalidRecords(f"column {name} is of type {kind}, expected binary or string")


def validity(column: pa.Array, valid: pa.Buffer | None) -> tuple[npt.NDArray[np.uint8], int]:
    """Return (validity bitmap, index in the bitmap of the first row's bit).

    The bitmap is empty if no row is null.
    """
    if valid is None or column.null_count == 0:
        return NO_BYTES, 0
    return np.frombuffer(valid, np.uint8), column.offset


def header_column(column: pa.Array | None) -> HeaderColumn:
    """Return the arrays of a headers column; its field names may have any case (Key, VALUE)."""
    if column is None or pa.types.is_null(column.type):
        return HeaderColumn()
    kind = column.type
    if pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_field))
        kind = column.type
    names: Sequence[str] = ()
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        names = [field.name.lower() for field in kind.value_type]
    if sorted(names) != ["key", "value"]:
        raise InvalidRecords(
            f"column headers is of type {kind}, expected list<struct<key: string, value: binary>>"
        )
    structs = column.values
    # flatten() marks the fields of a null struct as null. So a null header has a null key, and its
    # row is rejected for this reason.
    # A field of Arrow's null type needs its nulls in a bitmap, because headers refer to its values.
    fields = [
        each.cast(pa.binary()) if pa.types.is_null(each.type) else each
        for each in structs.flatten()
    ]
    valid, ends = column.buffers()[:2]
    first = column.offset
    keys = bytes_column("headers.key", fields[names.index("key")])
    values = bytes_column("headers.value", fields[names.index("value")])
    return HeaderColumn(
        np.frombuffer(ends, np.int32)[first : first + len(column) + 1],
        *validity(column, valid),
        keys,
        values,
    )


def partition_column(
    column: pa.Array | None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], int]:
    """Return (partition numbers, validity bitmap, index in the bitmap of the first row's bit).

    The arrays are empty if the column is absent.
    """
    if column is None or pa.types.is_null(column.type):
        return np.empty(0, np.int32), NO_BYTES, 0
    if not pa.types.is_integer(column.type):
        raise InvalidRecords(f"column partition is of type {column.type}, expected int")
    try:
        column = column.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise InvalidRecords(f"column partition: {error}") from None
    valid, data = column.buffers()
    numbers = np.frombuffer(data, np.int32)[column.offset : column.offset + len(column)]
    return numbers, *validity(column, valid)


def timestamps_in_ms(column: pa.Array | None, now_ms: int) -> npt.NDArray[np.int64]:
    """Return the timestamps in milliseconds, rounded down; null becomes ``now_ms``.

    Without a timestamp column the array has one element, ``now_ms``, which holds for all rows.
    """
    if column is None or pa.types.is_null(column.type):
        return np.array([now_ms], np.int64)
    if not pa.types.is_timestamp(column.type):
        raise InvalidRecords(f"column timestamp is of type {column.type}, expected timestamp")
    if column.type.unit == "s":
        try:
            column = column.cast(pa.timestamp("ms", column.type.tz))
        except pa.ArrowInvalid as error:
            raise InvalidRecords(f"column timestamp: {error}") from None
    per_ms = _UNITS_PER_MS[column.type.unit]
    data = column.buffers()[1]
    numbers = np.frombuffer(data, np.int64)[column.offset : column.offset + len(column)]
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        numbers = np.where(missing, now_ms * per_ms, numbers)
    milliseconds = numbers if per_ms == 1 else numbers // per_ms
    if milliseconds.max() > _MAX_TIMESTAMP_MS:
        raise InvalidRecords(
            f"the largest timestamp in column timestamp is {milliseconds.max()} ms, "
            f"expected at most {_MAX_TIMESTAMP_MS}"
        )
    return np.ascontiguousarray(milliseconds)
