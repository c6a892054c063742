"""Compaction removes only superseded records, and all of them; other records stay unchanged.

Each log is compared with a journal of all that was appended to it: after every start, after every
round of the cleaner, and record by record as consumers read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.record import Record
from tests.simulation.checks.journal import Entry, Journal
from tests.simulation.checks.records import CHANGED, Records, name_of
from tests.simulation.machine import Machine, Watcher
from tests.simulation.world import Violation, World

KEPT = "the last record of each key stays"
TOMBSTONES = "a tombstone stays for its time, and older values are gone before it"
MARKERS = "a marker stays as long as its transaction's records"
PRODUCERS = "the last batch of each producer stays"
CLEAN = "a log that was cleaned has no superseded records"
RISES = "offsets rise"


class _Log:
    """A compacted log; before ``cleanable_end`` it may have been cleaned by now."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.cleanable_end = 0
        self.marks: tuple[Any, ...] = ()
        """The log's offsets and segments when it was last inspected."""
        self.delete_retention_ms = 0
        self.min_lag_ms = 0
        self.cleaned: int | None = None
        self.round_ended: tuple[int, int] | None = None
        """When the round ended by the wall clock, and how many jumps it had made until then."""


class Compaction(Watcher):
    """Checks all compacted logs. ``rounds`` counts the rounds of the cleaner."""

    def __init__(self, world: World, records: Records) -> None:
        self._world = world
        self._records = records
        self._logs: dict[TopicPartition, _Log] = {}
        self.rounds = 0

    # --- events of the machine --------------------------------------------------------------------
    def on_start(self, machine: Machine) -> None:
        for log in _compacted(machine):
            if log.is_offline:
                continue
            known = self._known(log)
            end = int(log.log_end_offset)
            known.journal.cut(end)
            known.cleanable_end = min(known.cleanable_end, end)
            known.cleaned, known.round_ended, known.marks = log.cleaned_offset, None, ()
            self._append(known, log)
            self._look(known, log)

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        for log in machine.broker.services.logs.logs():
            if log.config.compact and not log.is_offline:
                try:
                    self._follow(machine, log)
                except OSError:  # No descriptor is left: the next turn looks again.
                    if not machine.has_disk_trouble:
                        raise

    def _follow(self, machine: Machine, log: Any) -> None:
        marks = log.log_end_offset, log.last_stable_offset, log.cleaned_offset, log.segments
        known = self._logs.get(log.topic_partition)
        if known is not None and known.marks == marks:
            return
        known = self._known(log)
        if log.log_end_offset != known.journal.end:
            self._append(known, log)
        limit = min(int(log.segments[-1].base_offset), int(log.last_stable_offset))
        known.cleanable_end = max(known.cleanable_end, limit)
        if log.cleaned_offset != known.cleaned:
            known.cleaned = log.cleaned_offset
            self.rounds += 1
            self._world.note(f"log {log.topic_partition} is clean to {known.cleaned}")
            self._look_at_round(known, log)
        known.marks = marks
        if machine.dies_in_swap is not None and any(each.suffix for each in log.segments):
            machine.is_swapping()

    def finish(self, machine: Machine) -> None:
        """Compare all logs once more, after the last event."""
        for log in _compacted(machine):
            if log.topic_partition in self._logs:
                self._look(self._known(log), log)

    # --- reports of consumers ---------------------------------------------------------------------
    def is_compacted(self, partition: TopicPartition) -> bool:
        """Whether superseded records of the partition may be missing."""
        return partition in self._logs

    def was_read(self, partition: TopicPartition, record: Record) -> None:
        """A consumer has read this record: it must equal the record that was appended."""
        known = self._logs[partition]
        entry = known.journal.entries.get(record.offset)
        if record.offset < known.journal.end and (entry is None or entry.record != record):
            raise Violation(CHANGED, f"{partition}: {record} was read, it was {entry}")

    def was_skipped(self, partition: TopicPartition, first: int, end: int) -> None:
        """A consumer got nothing from ``first`` on and before ``end``."""
        known = self._logs[partition]
        for offset in range(first, end):
            self._check_missing(known, partition, offset, "was not read")

    # --- looks -----------------------------------------------------------------------------------
    def _known(self, log: Any) -> _Log:
        known = self._logs.setdefault(log.topic_partition, _Log())
        known.delete_retention_ms = log.config.delete_retention_ms
        known.min_lag_ms = log.config.min_compaction_lag_ms
        return known

    def _append(self, known: _Log, log: Any) -> None:
        now_ms, jumps = self._world.clock.now_ms(), self._world.clock.jumps
        partition = log.topic_partition
        for batch in _batches(log, max(known.journal.end, int(log.log_start_offset))):
            for entry in known.journal.append(batch, now_ms, jumps):
                if not partition.topic.startswith("_") and entry.control_type is None:
                    self._records.was_found(partition, entry.record.offset, name_of(entry.record))

    def _look(self, known: _Log, log: Any) -> dict[int, Entry]:
        """Compare the whole log with its journal; return the entries that are there, by offset."""
        journal, partition = known.journal, log.topic_partition
        start, at = int(log.log_start_offset), -1
        found: dict[int, Entry] = {}
        ends: dict[int, int] = {}
        for batch in _batches(log, start):
            ends[batch.producer_id] = batch.last_offset
            for record in batch.records():
                entry = journal.entries.get(record.offset)
                if record.offset <= at:
                    raise Violation(RISES, f"{partition}: {record.offset} follows {at}")
                if entry is None or entry.record != record:
                    raise Violation(CHANGED, f"{partition} has {record}, it was {entry}")
                at = record.offset
                if at >= start:
                    found[at] = entry
        gone = [o for o in journal.entries if start <= o < journal.end and o not in found]
        for offset in gone:
            self._check_missing(known, partition, offset, "is gone")
        self._check_tables(known, partition, found)
        self._check_producers(journal, partition, start, ends)
        self._excuse(known, partition, gone)
        return found

    def may_be_missing(self, partition: TopicPartition, offset: int) -> bool:
        """Whether the cleaner may have removed this record."""
        if partition not in self._logs:
            return False
        try:
            self._check_missing(self._logs[partition], partition, offset, "")
        except Violation:
            return False
        return True

    def _check_missing(self, known: _Log, partition: TopicPartition, offset: int, how: str) -> None:
        """Violation if the cleaner had no reason to remove the record."""
        journal, clock = known.journal, self._world.clock
        entry = journal.entries.get(offset)
        if entry is None:
            return
        what = f"{partition} offset {offset}: {entry.record} {how}"
        is_timed = entry.jumps == clock.jumps
        age_ms = clock.now_ms() - entry.appended_ms
        if offset >= known.cleanable_end:
            raise Violation(KEPT, f"{what}, and nothing from {known.cleanable_end} on was cleaned")
        if entry.control_type is not None:
            if is_timed and age_ms < known.delete_retention_ms:
                raise Violation(MARKERS, f"{what} {age_ms} ms after it was written")
            return
        lag_ms = clock.now_ms() - entry.record.timestamp_ms
        if not clock.jumps and lag_ms < known.min_lag_ms:
            raise Violation(KEPT, f"{what}, {lag_ms} ms old")
        if not journal.is_committed(offset):
            if journal.commits.get(offset) is None:
                raise Violation(KEPT, f"{what}, and its transaction is open")
            return
        if journal.last_committed(entry.record.key, known.cleanable_end) > offset:
            return
        if not entry.is_tombstone:
            raise Violation(KEPT, f"{what}, and is the last of its key")
        if is_timed and age_ms < known.delete_retention_ms:
            raise Violation(TOMBSTONES, f"{what} {age_ms} ms after it was written")

    def _check_tables(
        self, known: _Log, partition: TopicPartition, found: dict[int, Entry]
    ) -> None:
        """Check the value of each key that a reader of the whole log gets now."""
        journal = known.journal
        last: dict[bytes | None, int] = {}
        for offset, entry in found.items():
            if entry.control_type is not None:
                continue
            marker = journal.marker_of.get(offset)
            if marker is not None and marker not in found:
                raise Violation(MARKERS, f"{partition}: {offset} is there, {marker} is not")
            if journal.is_committed(offset):
                last[entry.record.key] = offset
        for key, offset in last.items():
            newest = journal.last_committed(key, journal.end)
            if newest != offset and not found[offset].is_tombstone:
                text = f"{partition}: {key!r} is {found[offset].record} again, it was"
                raise Violation(TOMBSTONES, f"{text} {journal.entries[newest].record}")

    def _check_producers(
        self, journal: Journal, partition: TopicPartition, start: int, ends: dict[int, int]
    ) -> None:
        """The log alone, without a snapshot, must show where each producer continues.

        Its last batch, even an empty one, shows it. ``ends`` is the last offset of each producer in
        the log. The marker of a transaction can take the place of the transaction's last batch.
        """
        for producer_id, end in journal.last_of.items():
            last = journal.entries[end]
            is_expired = last.jumps != self._world.clock.jumps
            if end < start or last.is_transactional or is_expired:
                continue
            if ends.get(producer_id) != end:
                text = f"{partition}: the batch of producer {producer_id} that ends at {end}"
                raise Violation(PRODUCERS, f"{text} is gone")

    def _look_at_round(self, known: _Log, log: Any) -> None:
        """A round of the cleaner has covered all offsets before ``known.cleaned``."""
        found = self._look(known, log)
        partition, end = log.topic_partition, known.cleaned or 0
        keys: dict[bytes | None, int] = {}
        for offset, entry in found.items():
            if offset >= end or entry.control_type is not None:
                continue
            before = keys.setdefault(entry.record.key, offset)
            if before != offset or not known.journal.is_committed(offset):
                raise Violation(CLEAN, f"{partition} to {end} still has {found[before].record}")
        self._check_horizons(known, log, end)
        clock = self._world.clock
        known.round_ended = clock.now_ms(), clock.jumps

    def _check_horizons(self, known: _Log, log: Any, end: int) -> None:
        """Batches with tombstones have a delete horizon, later than the end of the round before."""
        jumps = self._world.clock.jumps
        began = known.round_ended
        over_ms = began[0] if began is not None and began[1] == jumps else None
        for batch in _batches(log, int(log.log_start_offset)):
            if batch.is_control or batch.last_offset >= end:
                continue
            if all(each.value is not None for each in batch.records()):
                continue
            horizon_ms = batch.delete_horizon_ms
            if horizon_ms is None or (over_ms is not None and horizon_ms < over_ms):
                where = f"{log.topic_partition} offset {batch.base_offset}"
                raise Violation(CLEAN, f"{where}: tombstones to {horizon_ms}, it was {over_ms}")

    def _excuse(self, known: _Log, partition: TopicPartition, gone: list[int]) -> None:
        """Let producers write superseded records again that the cleaner has removed.

        A producer that has no response yet may retry. After a start the broker surely knows only
        the last batch of each producer.
        """
        if partition.topic.startswith("_"):
            return
        journal = known.journal
        entries = [journal.entries[offset] for offset in gone]
        self._records.excuse(
            name_of(each.record)
            for each in entries
            if each.control_type is None and journal.last_of.get(each.producer_id) != each.batch_end
        )


def _compacted(machine: Machine) -> list[Any]:
    return [log for log in machine.logs() if log.config.compact]


def _batches(log: Any, offset: int) -> Iterator[BatchView]:
    """The batches from the one with this offset up to the log end, empty batches included."""
    end = int(log.log_end_offset)
    try:
        while offset < end:
            region = log.read(offset, 1 << 20, end_offset=end, min_one_batch=True).region
            if region is None:
                return
            data = region.file.pread(region.size, region.position)
            for batch in split_batches(data, allow_partial=True):
                batch.check_crc()
                yield batch
                offset = batch.next_offset
    except KlogError as error:
        raise Violation(CHANGED, f"{log.topic_partition}: {error}") from error
