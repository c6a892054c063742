"""Maps each key in the dirty part of a log to the key's last offset, in bounded memory."""

import numpy as np

from klog_broker.compaction import kernel
from klog_broker.compaction.decompressed_runs import (
    Bytes,
    Codecs,
    Flags,
    Numbers,
    Runs,
    TableChunk,
    as_chunk,
    records_error,
)
from pyspark_klog.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from pyspark_klog.records.kernels.scan import (
    LAST_OFFSET,
    MAGIC,
    POSITION,
    RECORD_COUNT,
)
from pyspark_klog.records.kernels.status import FULL, NOT_PLAIN, OFFSET_OVERFLOW, OK
from pyspark_klog.records.layout import INT64_MAX, MAGIC_V2, Buffer
from pyspark_klog.records.legacy import LegacyView
from pyspark_klog.records.record_section import wrap_int64

SLOT_BYTES = 8 * kernel.SLOT_WORDS
_FIRST_SLOTS = 4096
_GROWTH = 4
_MOST_SLOTS = 2**31 - 1
# The map grows when this fraction of its slots (places of one key each) is taken, because searches
# are short only with free slots. A map of the largest allowed size is filled further, to its load
# factor.
_FILL_OF_SMALL = 0.5
_FILL_OF_KNOWN = 0.75
"""The caller of `KeyMap` may give a limit for the number of keys. The map then grows only to the
size at which so many keys fill this fraction of its slots (places of one key each), or
``load_factor`` of them if that is less."""


class KeyMap:
    """Maps the hashes of keys to offsets, like Kafka's SkimpyOffsetMap.

    The map begins small. Its slots (places of one key each) take at most ``max_bytes``; while the
    map grows, the old slots are in memory as well. The largest map is full when ``load_factor`` of
    its slots are taken. ``hash_key`` is two secret random numbers of 64 bits, different for each
    map. The caller adds at most ``most_keys`` keys, so the map does not grow beyond the slots for
    these keys. ``max_decompressed_bytes`` limits the size of a decompressed batch.
    """

    def __init__(
        self,
        max_bytes: int,
        load_factor: float,
        hash_key: tuple[int, int],
        *,
        most_keys: int | None = None,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self._most_slots = min(max_bytes // SLOT_BYTES, _MOST_SLOTS)
        if most_keys is not None:
            fill = min(load_factor, _FILL_OF_KNOWN)
            self._most_slots = min(self._most_slots, int(most_keys / fill) + 2)
        # At least one slot stays empty, because the search for a key that the map does not have
        # ends at an empty slot.
        self._most_keys = min(int(self._most_slots * load_factor), self._most_slots - 1)
        if self._most_keys < 1:
            raise ValueError(
                f"the log cleaner's map of {max_bytes} bytes can hold no key with a load factor of "
                f"{load_factor}: a key takes {SLOT_BYTES} bytes"
            )
        self.hash_key = (wrap_int64(hash_key[0]), wrap_int64(hash_key[1]))
        self._codecs = Codecs(max_decompressed_bytes)
        self._block = np.empty(kernel.BLOCK_WORDS, np.int64)
        self._state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self.clear()

    def clear(self) -> None:
        """Remove all keys, and shrink the map to its initial size."""
        self._slots = np.zeros(
            min(_FIRST_SLOTS, self._most_slots) * kernel.SLOT_WORDS, dtype=np.int64
        )
        self._state[kernel.STATE_KEYS] = 0
        self.latest_offset = -1

    @property
    def slots(self) -> Numbers:
        """The map's array of slots (places of one key each), for kernels (compiled functions);
        valid until the next call that adds keys."""
        return self._slots

    @property
    def size_bytes(self) -> int:
        """The memory that the map's array of slots takes now."""
        return self._slots.nbytes

    @property
    def size(self) -> int:
        """The number of keys in the map."""
        return int(self._state[kernel.STATE_KEYS])

    @property
    def latest_offset(self) -> int:
        """The map has all keys of the dirty records up to this offset; -1 at first.

        A caller that knows that no key is missing up to a later offset may set that offset.
        """
        return int(self._state[kernel.STATE_LATEST_OFFSET])

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None:
        self._state[kernel.STATE_LATEST_OFFSET] = offset

    @property
    def is_full(self) -> bool:
        return self.size >= self._most_keys

    def offset_of(self, key: bytes) -> int:
        """Return the largest offset that was added for ``key``; -1 if there is none."""
        return kernel.find_key(np.frombuffer(key, np.uint8), *self.hash_key, self._slots)

    def add_chunk(
        self, data: Buffer | Bytes, table: Numbers, row_count: int, skip: Bytes, from_offset: int
    ) -> bool:
        """Add the keys of the first ``row_count`` batches of ``data``.

        ``table`` is the flat table that kernels.scan made of ``data``, with a row for each batch.
        Records before ``from_offset`` are not added. No key is added of a batch whose byte in
        ``skip`` is not 0, nor of a batch without records, but ``latest_offset`` covers them.

        Returns False if the map is full before a row is added completely; ``latest_offset`` then
        lies before that row. Raises subclasses of RecordsError for damaged rows.
        """
        chunk = as_chunk(data, table, row_count)
        from_offset = max(from_offset, 0)
        runs: Runs | None = None
        row = 0
        while True:
            status = self._add_rows(chunk, row, row_count, skip, from_offset)
            row = int(self._state[kernel.STATE_ROW])
            if status == NOT_PLAIN and chunk.field(row, MAGIC) != MAGIC_V2:
                if not self._add_old(chunk, row, from_offset):
                    return False
                row += 1
            elif status == NOT_PLAIN:
                if runs is None:
                    runs = Runs(chunk, _is_needed(chunk, skip, from_offset), self._codecs)
                run = runs.inflated(row)
                end = row + run.row_count
                if not self.add_chunk(
                    run.data, run.table, run.row_count, skip[row:end], from_offset
                ):
                    return False
                row = end
            elif status == FULL:
                if not self._grow():
                    return False
            elif status == OK:
                return True
            else:
                record = int(self._state[kernel.STATE_RECORD])
                raise records_error(status, chunk, row, record)

    def _add_rows(
        self, chunk: TableChunk, row: int, rows_end: int, skip: Bytes, from_offset: int
    ) -> int:
        return kernel.add_rows(
            chunk.data,
            chunk.table,
            row,
            rows_end,
            skip,
            from_offset,
            *self.hash_key,
            self._slots,
            self._keys_before_growth(),
            self._block,
            self._state,
        )

    def _add_old(self, chunk: TableChunk, row: int, from_offset: int) -> bool:
        """Add the records of a message of format v0 or v1, or of a wrapper around several such
        messages; returns whether the map had space for all their keys."""
        last_offset = chunk.field(row, LAST_OFFSET)
        if last_offset < from_offset:
            return True
        entry = LegacyView(chunk.data.data, chunk.field(row, POSITION), chunk.end_position(row))
        for record in entry.records(self._codecs.max_bytes):
            if record.offset == INT64_MAX:
                raise records_error(OFFSET_OVERFLOW, chunk, row, 0)
            if record.key is None or record.offset < from_offset:
                continue
            if not self._put(record.key, record.offset):
                return False
        self.latest_offset = max(self.latest_offset, last_offset)
        return True

    def _put(self, key: bytes, offset: int) -> bool:
        data = np.frombuffer(key, np.uint8)
        while (
            kernel.put_key(
                data,
                *self.hash_key,
                offset,
                self._slots,
                self._keys_before_growth(),
                self._state,
            )
            == FULL
        ):
            if not self._grow():
                return False
        return True

    def _slot_count(self) -> int:
        return len(self._slots) // kernel.SLOT_WORDS

    def _keys_before_growth(self) -> int:
        slots = self._slot_count()
        if slots == self._most_slots:
            return self._most_keys
        return min(int(slots * _FILL_OF_SMALL), self._most_keys)

    def _grow(self) -> bool:
        """Enlarge the map to four times its slots (places of one key each), but not beyond its
        largest size. Returns False if the largest map would be full, too."""
        slots = self._slot_count()
        if self.is_full:
            return False
        larger = np.zeros(
            min(slots * _GROWTH, self._most_slots) * kernel.SLOT_WORDS, dtype=np.int64
        )
        kernel.move_keys(self._slots, larger)
        self._slots = larger
        return True


def _is_needed(chunk: TableChunk, skip: Bytes, from_offset: int) -> Flags:
    """Return a flag for each batch of the chunk: whether the keys of its records are added to the
    map, so that a compressed batch must be decompressed."""
    found: Flags = (
        (chunk.column(RECORD_COUNT) != 0)
        & (skip[: chunk.row_count] == 0)
        & (chunk.column(LAST_OFFSET) >= from_offset)
    )
    return found
