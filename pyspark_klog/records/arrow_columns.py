"""Buffers that the compiled kernel ``decode_batches`` fills with the fields of records, and the
Arrow columns that are made from these buffers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_klog.records.kernels import batch_decoding

HEADER_STRUCT = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_STRUCT)),
}
"""The columns of the connector's rows, in the connector's order, with their Arrow types.

All columns are nullable, like the columns that Spark's own connector declares.
"""

DEFAULT_COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")

_WANTED = {
    "key": batch_decoding.WANT_KEY,
    "value": batch_decoding.WANT_VALUE,
    "offset": batch_decoding.WANT_OFFSET,
    "timestamp": batch_decoding.WANT_TIMESTAMP,
    "timestampType": batch_decoding.WANT_TIMESTAMP_TYPE,
    "headers": batch_decoding.WANT_HEADERS,
}

# Arrow's binary columns store the end position of each value as a signed 32-bit number.
MAX_COLUMN_BYTES = 2**31 - 1


def schema_for(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of records that are decoded to ``columns``.

    Raises ValueError if ``columns`` is empty, or contains an unknown or a repeated name.
    """
    unknown = [name for name in columns if name not in COLUMN_TYPES]
    if unknown or not columns or len(set(columns)) != len(columns):
        raise ValueError(
            f"columns {list(columns)}: expected some of {list(COLUMN_TYPES)}, each at most once"
        )
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])


def repeated(value: str | int, rows: int) -> pa.Array:
    """Return a column of ``rows`` rows that all have ``value``: a text, or a 32-bit number.

    pa.scalar and pa.array are not used, because their first call in a process imports pandas, which
    takes 0.3 s of processor time.
    """
    if isinstance(value, str):
        data = value.encode()
        ends = pa.py_buffer(np.array([0, len(data)], np.int32))
        one = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(data)])
    else:
        one = pa.Array.from_buffers(
            pa.int32(), 1, [None, pa.py_buffer(np.array([value], np.int32))]
        )
    return pa.repeat(one[0], rows)


def wanted_bits(columns: Sequence[str]) -> int:
    """Return the bit mask that requests ``columns`` from the kernel ``decode_batches``: the sum of
    the WANT_* bits of those ``columns`` that the kernel can fill."""
    return sum(_WANTED.get(name, 0) for name in columns)


class _KernelBuffer:
    """An Arrow buffer of ``count`` elements; ``array`` is the view that a kernel writes to."""

    def __init__(self, count: int, dtype: npt.DTypeLike) -> None:
        self._itemsize = np.dtype(dtype).itemsize
        self._buffer = pa.allocate_buffer(count * self._itemsize, resizable=True)
        self.array: npt.NDArray[np.generic] = np.frombuffer(self._buffer, dtype)

    def detach_buffer(self, count: int) -> pa.Buffer:
        """Return the first ``count`` elements as a buffer; ``array`` is empty afterwards.

        If more than half of the memory is unused, the buffer is shrunk to free it.
        """
        self.array = _NOTHING  # `resize` may move the memory that the old ``array`` views
        used = count * self._itemsize
        if used < self._buffer.size // 2:
            self._buffer.resize(used, shrink_to_fit=True)
            return self._buffer
        return self._buffer.slice(0, used)


_NOTHING = np.empty(0, np.uint8)


class _EmptyBuffer(_KernelBuffer):
    """An empty array in place of a column that the caller did not request."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.array = np.empty(0, dtype)


class _Bytes:
    """The buffers of a binary column: end positions and bytes of the values, validity bitmap."""

    def __init__(self, rows: int, capacity_bytes: int, *, wanted: bool) -> None:
        self.ends = _KernelBuffer(rows + 1, np.int32) if wanted else _EmptyBuffer(np.int32)
        self.data = _KernelBuffer(capacity_bytes, np.uint8) if wanted else _EmptyBuffer(np.uint8)
        self.valid = _KernelBuffer((rows + 7) // 8, np.uint8) if wanted else _EmptyBuffer(np.uint8)
        if wanted:
            self.ends.array[0] = 0
            self.valid.array.fill(0xFF)

    def finish(self, kind: pa.DataType, rows: int, used_bytes: int, nulls: int) -> pa.Array:
        valid = self.valid.detach_buffer((rows + 7) // 8) if nulls else None
        buffers = [valid, self.ends.detach_buffer(rows + 1), self.data.detach_buffer(used_bytes)]
        return pa.Array.from_buffers(kind, rows, buffers, null_count=nulls)


class ColumnBuffers:
    """Buffers for up to ``max_rows`` records.

    The keys together may have ``capacity_bytes`` bytes, and so may the values, the header keys and
    the header values.
    """

    def __init__(self, wanted: int, max_rows: int, capacity_bytes: int) -> None:
        self.max_rows = max_rows
        self.offsets = self._fixed(wanted & batch_decoding.WANT_OFFSET, np.int64)
        self.timestamps = self._fixed(wanted & batch_decoding.WANT_TIMESTAMP, np.int64)
        self.timestamp_types = self._fixed(wanted & batch_decoding.WANT_TIMESTAMP_TYPE, np.int32)
        self.keys = _Bytes(max_rows, capacity_bytes, wanted=bool(wanted & batch_decoding.WANT_KEY))
        self.values = _Bytes(
            max_rows, capacity_bytes, wanted=bool(wanted & batch_decoding.WANT_VALUE)
        )
        with_headers = bool(wanted & batch_decoding.WANT_HEADERS)
        self.header_ends = (
            _KernelBuffer(max_rows + 1, np.int32) if with_headers else _EmptyBuffer(np.int32)
        )
        if with_headers:
            self.header_ends.array[0] = 0
        # A header takes at least two bytes, so the headers of a record of capacity_bytes always
        # fit. Most headers are far larger: the buffers for their bytes are full before
        # most_headers is reached.
        most_headers = max(capacity_bytes // 2, 1)
        self.header_keys = _Bytes(most_headers, capacity_bytes, wanted=with_headers)
        self.header_values = _Bytes(most_headers, capacity_bytes, wanted=with_headers)

    def _fixed(self, wanted: int, dtype: npt.DTypeLike) -> _KernelBuffer:
        return _KernelBuffer(self.max_rows, dtype) if wanted else _EmptyBuffer(dtype)

    def arguments(self) -> tuple[npt.NDArray[np.generic], ...]:
        """Return the arrays in the order of the parameters of the kernel ``decode_batches``."""
        return (
            self.offsets.array,
            self.timestamps.array,
            self.timestamp_types.array,
            *(self.keys.ends.array, self.keys.data.array, self.keys.valid.array),
            *(self.values.ends.array, self.values.data.array, self.values.valid.array),
            self.header_ends.array,
            *(self.header_keys.ends.array, self.header_keys.data.array),
            *(self.header_values.ends.array, self.header_values.data.array),
            self.header_values.valid.array,
        )

    def finish(self, state: Sequence[int], columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return the Arrow arrays of those ``columns`` that the kernel filled, by column name.

        ``state`` is the state array of the kernel ``decode_batches`` after its last call. The
        arrays take over the memory, so this object must not be used after the call.
        """
        rows = state[batch_decoding.ROWS]
        done: dict[str, pa.Array] = {}
        for name in columns:
            kind = COLUMN_TYPES[name]
            if name == "key":
                done[name] = self.keys.finish(
                    kind, rows, state[batch_decoding.KEY_BYTES], state[batch_decoding.KEY_NULLS]
                )
            elif name == "value":
                done[name] = self.values.finish(
                    kind, rows, state[batch_decoding.VALUE_BYTES], state[batch_decoding.VALUE_NULLS]
                )
            elif name == "offset":
                done[name] = _fixed_array(kind, rows, self.offsets)
            elif name == "timestamp":
                done[name] = _fixed_array(kind, rows, self.timestamps)
            elif name == "timestampType":
                done[name] = _fixed_array(kind, rows, self.timestamp_types)
            elif name == "headers":
                done[name] = self._headers(state, rows)
        return done

    def _headers(self, state: Sequence[int], rows: int) -> pa.Array:
        count = state[batch_decoding.HEADERS]
        key_bytes = state[batch_decoding.HEADER_KEY_BYTES]
        if state[batch_decoding.HEADER_KEYS_NOT_UTF8]:
            # Like Kafka's clients, replace invalid UTF-8 in header keys with U+FFFD.
            raw = self.header_keys.finish(pa.binary(), count, key_bytes, 0)
            names = [key.decode("utf-8", "replace") for key in raw.to_pylist()]
            keys = pa.array(names, pa.string())
        else:
            keys = self.header_keys.finish(pa.string(), count, key_bytes, 0)
        values = self.header_values.finish(
            pa.binary(),
            count,
            state[batch_decoding.HEADER_VALUE_BYTES],
            state[batch_decoding.HEADER_VALUE_NULLS],
        )
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_STRUCT))
        ends = self.header_ends.detach_buffer(rows + 1)
        # Like in Spark's Kafka connector, a record without headers gets null, not an empty list.
        edges = np.frombuffer(ends, np.int32, rows + 1)
        some = edges[1:] != edges[:-1]
        nulls = rows - int(np.count_nonzero(some))
        bits = pa.py_buffer(np.packbits(some, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(
            COLUMN_TYPES["headers"], rows, [bits, ends], null_count=nulls, children=[structs]
        )


def _fixed_array(kind: pa.DataType, rows: int, buffer: _KernelBuffer) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, buffer.detach_buffer(rows)], null_count=0)
