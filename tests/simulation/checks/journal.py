"""All records that were ever appended to one log, with the fate of their transactions."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import ControlType, control_type_of
from pyspark_klog.records.record import Record


class Entry(NamedTuple):
    """A record, the wall-clock time of its append, and the number of clock jumps before it."""

    record: Record
    batch_end: int
    """The last offset of the record's batch."""
    producer_id: int
    is_transactional: bool
    control_type: ControlType | None
    appended_ms: int
    jumps: int

    @property
    def is_tombstone(self) -> bool:
        return self.control_type is None and self.record.value is None


class Journal:
    """Entries by offset.

    ``commits`` says for each record of an ended transaction whether the transaction was committed;
    a record that is missing there is of an open transaction or of none.
    """

    def __init__(self) -> None:
        self.end = 0
        self.entries: dict[int, Entry] = {}
        self.commits: dict[int, bool] = {}
        self.marker_of: dict[int, int] = {}
        """The offset of the marker, by the offset of each record of its transaction."""
        self.last_of: dict[int, int] = {}
        """The end of a producer's last batch, by producer id."""
        self._open: dict[int, list[int]] = {}
        self._by_key: dict[bytes | None, list[int]] = {}

    def append(self, batch: BatchView, appended_ms: int, jumps: int) -> list[Entry]:
        """Append a batch at the end; return its new entries."""
        new = []
        for record in batch.records():
            if record.offset < self.end:
                continue
            entry = Entry(
                record,
                batch.last_offset,
                batch.producer_id,
                batch.is_transactional,
                control_type_of(record.key) if batch.is_control else None,
                appended_ms,
                jumps,
            )
            self._add(entry)
            new.append(entry)
        self.end = max(self.end, batch.next_offset)
        return new

    def _add(self, entry: Entry) -> None:
        offset = entry.record.offset
        self.entries[offset] = entry
        if entry.control_type is not None:
            for each in self._open.pop(entry.producer_id, []):
                self.commits[each] = entry.control_type is ControlType.COMMIT
                self.marker_of[each] = offset
            return
        self._by_key.setdefault(entry.record.key, []).append(offset)
        if entry.producer_id >= 0:
            self.last_of[entry.producer_id] = entry.batch_end
        if entry.is_transactional:
            self._open.setdefault(entry.producer_id, []).append(offset)

    def cut(self, end: int) -> None:
        """Remove the entries from offset ``end`` on, which the log has lost."""
        if end >= self.end:
            return
        entries = [each for offset, each in sorted(self.entries.items()) if offset < end]
        self.__init__()  # type: ignore[misc]
        for each in entries:
            self._add(each)
        self.end = end

    def is_committed(self, offset: int) -> bool:
        """Whether a record of a client is visible to readers of committed records."""
        return not self.entries[offset].is_transactional or self.commits.get(offset, False)

    def last_committed(self, key: bytes | None, end: int) -> int:
        """The last offset of this key before ``end``; -1 if there is none."""
        for offset in reversed(self._by_key.get(key, [])):
            if offset < end and self.is_committed(offset):
                return offset
        return -1
