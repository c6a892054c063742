"""Compares the producers and transactions in the batches with snapshots and transaction indexes.

A scan of the log finds the last batch of each producer that wrote at or after the scan's first
offset. The batches of other producers were in deleted segments. So the entries of these producers
in a snapshot can only be compared with the snapshot at the scan's first offset, if there is one.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from klog_broker.inspection.report import Report
from klog_broker.inspection.segment_scan import ScannedBatches
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import add_to_sequence
from pyspark_klog.records.control import ControlType, control_type_of, decode_end_transaction
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.records.kernels import scan
from pyspark_klog.records.record_sets import entry_at
from pyspark_klog.storage.producer_snapshot import ProducerSnapshotEntry
from pyspark_klog.storage.transaction_index import AbortedEntry

_NONE = -1
_MOST_MARKER_BYTES = 1 << 20
# If a ProducerReplay holds more entries than this in memory (for producers, and for the abort
# markers of one segment), the log's producers and aborted transactions are no longer checked.
MOST_ENTRIES = 1_000_000
_COLUMNS = [
    scan.PRODUCER_ID,
    scan.PRODUCER_EPOCH,
    scan.BASE_SEQUENCE,
    scan.BASE_OFFSET,
    scan.LAST_OFFSET,
    scan.RECORD_COUNT,
    scan.ATTRIBUTES,
]


@dataclass(slots=True)
class ScannedProducer:
    """A producer's state according to its batches. ``coordinator_epoch`` and ``transaction_start``
    are None if they depend on batches before the scan's first offset."""

    epoch: int
    last_sequence: int = _NONE
    last_offset: int = _NONE
    offset_delta: int = 0
    coordinator_epoch: int | None = None
    transaction_start: int | None = _NONE
    is_adopted: bool = False
    """Whether `ProducerReplay.compare` has taken the state from a snapshot, because the scan had
    found no batch of the producer, and no batch was found since."""


class Aborted(NamedTuple):
    """An abort marker, with the expected fields of its row in the .txnindex; None for unknown
    fields."""

    producer_id: int
    first_offset: int | None
    last_offset: int
    last_stable_offset: int | None


class ProducerReplay:
    """The producers' state after the batches added so far. ``is_complete``: the state has all
    producers, so that a producer without an entry has not written or has expired."""

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self.has_given_up = False
        """Whether the replay had more than MOST_ENTRIES entries in memory, so that the log's
        producers and abort markers are no longer compared with snapshots and transaction
        indexes."""
        self.producers: dict[int, ScannedProducer] = {}
        self.aborted: list[Aborted] = []
        """The abort markers that were added since ``forget_aborted`` was last called, except those
        of transactions without batches."""
        self.abort_markers: set[tuple[int, int]] = set()
        """Producer id and offset of all abort markers that were added since ``forget_aborted`` was
        last called."""

    def start_from(self, entries: list[ProducerSnapshotEntry]) -> None:
        """Start the replay of the producers' state from a producer snapshot, which describes the
        batches before the scan's first offset."""
        for entry in entries:
            self.producers[entry.producer_id] = _of_snapshot(entry)
        self.is_complete = True

    def add(self, chunk: ScannedBatches, first: int, end: int) -> str | None:
        """Add scanned batches: the rows of ``chunk`` from ``first`` up to ``end`` (exclusive).
        Return what is wrong with a transaction marker among these batches, or None."""
        if len(self.producers) + len(self.aborted) + len(self.abort_markers) > MOST_ENTRIES:
            self.has_given_up = True
            self.producers.clear()
            self.forget_aborted()
        if self.has_given_up:
            return None
        rows = chunk.rows[first:end]
        of_producers = np.flatnonzero(rows[:, scan.PRODUCER_ID] >= 0)
        if not len(of_producers):
            return None
        attributes = rows[of_producers, scan.ATTRIBUTES]
        special = attributes & (at.TRANSACTIONAL_BIT | at.CONTROL_BIT) != 0
        plain = of_producers[~special]
        # Outside transactions, only each producer's last batch matters, because a snapshot has no
        # others. Transactional batches and markers are all added. No producer writes batches of
        # both kinds.
        _, last = np.unique(rows[plain[::-1], scan.PRODUCER_ID], return_index=True)
        chosen = np.sort(np.concatenate((plain[::-1][last], of_producers[special])))
        wrong = None
        for row, fields in zip(chosen.tolist(), rows[chosen][:, _COLUMNS].tolist(), strict=True):
            if fields[-1] & at.CONTROL_BIT:
                wrong = self._add_marker(chunk, first + row, fields) or wrong
            else:
                self._add_batch(fields)
        return wrong

    def _add_batch(self, fields: list[int]) -> None:
        producer_id, epoch, base_sequence, base_offset, last_offset, count, attributes = fields
        producer = self._of(producer_id, epoch)
        if base_sequence >= 0:
            producer.last_sequence = add_to_sequence(base_sequence, last_offset - base_offset)
            producer.last_offset = last_offset
            producer.offset_delta = last_offset - base_offset
        # A transactional batch without records begins no transaction: compaction may have removed
        # its records and the marker of its transaction, which has ended.
        begins = attributes & at.TRANSACTIONAL_BIT and count
        if begins and producer.transaction_start == _NONE:
            producer.transaction_start = base_offset

    def _add_marker(self, chunk: ScannedBatches, row: int, fields: list[int]) -> str | None:
        producer_id, epoch, _, base_offset, last_offset, _, _ = fields
        if chunk.rows[row, scan.SIZE_BYTES] > _MOST_MARKER_BYTES or not len(chunk.data):
            return f"the control batch at offset {base_offset} is too large for a marker"
        try:
            record = next(iter(entry_at(chunk.bytes_of(row)).records()), None)
            if record is None or control_type_of(record.key) not in (
                ControlType.ABORT,
                ControlType.COMMIT,
            ):
                return None  # compaction has emptied the batch, or it is not a transaction's marker
            marker = decode_end_transaction(record)
        except RecordsError as error:
            return f"the control batch at offset {base_offset} cannot be read: {error}"
        producer = self._of(producer_id, epoch)
        began = producer.transaction_start
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.transaction_start = _NONE
        if marker.control_type is ControlType.ABORT:
            self.abort_markers.add((producer_id, last_offset))
            if began != _NONE:
                stable = self._last_stable_offset(last_offset + 1)
                self.aborted.append(Aborted(producer_id, began, last_offset, stable))
        return None

    def forget_aborted(self) -> None:
        """Forget the abort markers of a segment before the next segment is replayed."""
        self.aborted.clear()
        self.abort_markers.clear()

    def _last_stable_offset(self, end: int) -> int | None:
        """Return the first offset of the oldest open transaction, or ``end`` if none is open; None
        if the replayed state may lack producers, which may have open transactions."""
        if not self.is_complete:
            return None
        starts = [each.transaction_start for each in self.producers.values()]
        return min((start for start in starts if start not in (None, _NONE)), default=end)

    def _of(self, producer_id: int, epoch: int) -> ScannedProducer:
        producer = self.producers.get(producer_id)
        if producer is None:
            unknown = None if not self.is_complete else _NONE
            producer = ScannedProducer(epoch, transaction_start=unknown)
            producer.coordinator_epoch = unknown
            self.producers[producer_id] = producer
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.last_sequence = producer.last_offset = _NONE
            producer.offset_delta = 0
        producer.is_adopted = False
        return producer

    # --- comparison with a producer snapshot ------------------------------------------------------
    def compare(
        self,
        entries: list[ProducerSnapshotEntry],
        path: Path,
        report: Report,
        *,
        start: int,
        has_gaps: bool,
    ) -> None:
        """Compare a snapshot with the producers' state that was replayed from the log. ``start`` is
        the scan's first offset. With ``has_gaps`` (compaction or damage has removed records), a
        difference that a removed batch or marker explains is not reported."""
        if self.has_given_up:
            return
        named = {entry.producer_id: entry for entry in entries}
        if len(named) < len(entries):
            report.error(path, "the snapshot has a producer twice")
        forgotten = [each for each in self.producers if each not in named]
        if forgotten:
            # Only a note, because the producers may have expired (producer.id.expiration.ms), or
            # the snapshot may belong to log files that were lost.
            text = f"{len(forgotten)} producers of the log are not in the snapshot: perhaps expired"
            report.note(path, text)
            for each in forgotten:
                del self.producers[each]
        for producer_id, entry in named.items():
            known = self.producers.get(producer_id)
            if known is None or known.is_adopted:
                if known is None and entry.last_offset >= start and not has_gaps:
                    text = f"the last offset of producer {producer_id} is"
                    report.error(path, f"{text} {entry.last_offset}, but the log has no such batch")
                self.producers[producer_id] = replace(_of_snapshot(entry), is_adopted=True)
                continue
            if has_gaps and (
                known.last_offset < entry.last_offset or known.epoch < entry.producer_epoch
            ):
                continue  # the producer's last batch or marker may have been removed
            wrong = _differences(known, entry, start, has_gaps=has_gaps)
            if wrong:
                report.error(path, f"producer {producer_id}: {', '.join(wrong)}")


def _of_snapshot(entry: ProducerSnapshotEntry) -> ScannedProducer:
    return ScannedProducer(
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.offset_delta,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )


def _differences(
    known: ScannedProducer, entry: ProducerSnapshotEntry, start: int, *, has_gaps: bool
) -> list[str]:
    """Return a text for each field of a snapshot's entry that differs from the log; the timestamp
    is not compared. With ``has_gaps``, compaction may have removed a transaction's marker, or the
    first batches of a transaction that was open at the snapshot: such differences are left out."""
    found: list[tuple[str, int, int]] = [("epoch", entry.producer_epoch, known.epoch)]
    # Do not compare the last batch if the scan found only markers of the producer, and the last
    # offset in the snapshot is before the scan's start (the batch was in a deleted segment) or -1.
    if known.last_offset != _NONE or entry.last_offset >= start:
        found += [
            ("last sequence", entry.last_sequence, known.last_sequence),
            ("last offset", entry.last_offset, known.last_offset),
            ("offset delta", entry.offset_delta, known.offset_delta),
        ]
    epoch, began = known.coordinator_epoch, known.transaction_start
    if epoch is not None and not (has_gaps and epoch < entry.coordinator_epoch):
        found.append(("coordinator epoch", entry.coordinator_epoch, epoch))
    said = entry.current_transaction_first_offset
    if began is not None and not (has_gaps and said != _NONE and (began == _NONE or began > said)):
        found.append(("transaction's start", said, began))
    return [
        f"{name} {said} (expected {expected} from the log)"
        for name, said, expected in found
        if said != expected
    ]


# --- comparison with a transaction index ----------------------------------------------------------
def compare_aborted(
    rows: list[AbortedEntry],
    replay: ProducerReplay,
    path: Path,
    report: Report,
    *,
    has_gaps: bool,
) -> None:
    """Compare the rows of a segment's transaction index with the abort markers that the replay
    found in the segment, then let the replay forget these markers."""
    if replay.has_given_up:
        return
    expected = {(each.producer_id, each.last_offset): each for each in replay.aborted}
    before = -1
    for number, row in enumerate(rows):
        where = f"row {number}, producer {row.producer_id} up to offset {row.last_offset}"
        if row.last_offset <= before:
            report.error(path, f"{where}: the offset must be above the previous row's, {before}")
        before = row.last_offset
        wanted = expected.pop((row.producer_id, row.last_offset), None)
        if wanted is None:
            if (row.producer_id, row.last_offset) not in replay.abort_markers and not has_gaps:
                report.error(path, f"{where}: the log has no abort marker of the producer there")
            continue
        for name, said, found in (
            ("first offset", row.first_offset, wanted.first_offset),
            ("last stable offset", row.last_stable_offset, wanted.last_stable_offset),
        ):
            if found is not None and said != found and not has_gaps:
                report.error(path, f"{where}: {name} {said}, but the log has {found}")
    for wanted in expected.values():
        if wanted.first_offset is not None and not has_gaps:
            text = f"the abort of producer {wanted.producer_id} at offset {wanted.last_offset}"
            report.error(path, f"{text} has no row: consumers would take its records for committed")
    replay.forget_aborted()
