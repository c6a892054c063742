"""Retention removes only segments that are expired or surplus, and in the end all of them."""

from __future__ import annotations

from typing import Any

from pyspark_klog.ids import TopicPartition
from tests.simulation.checks.compaction import Compaction
from tests.simulation.checks.records import Records
from tests.simulation.machine import Machine, Watcher
from tests.simulation.world import Violation

TAKEN = "retention deletes only expired or surplus segments"
LEFT = "retention leaves no expired or surplus segment"
LOOKS_WITHIN_MS = 6_000


class Retention(Watcher):
    """Watches each log's start offset, and checks the records that a higher one has removed."""

    def __init__(self, records: Records, compaction: Compaction) -> None:
        self._records = records
        self._compaction = compaction
        self._starts: dict[TopicPartition, int] = {}

    def on_start(self, machine: Machine) -> None:
        # A power cut may bring back segments that were about to be removed.
        self._starts = {log.topic_partition: int(log.log_start_offset) for log in machine.logs()}
        for partition, start in self._starts.items():
            self._records.begins_at(partition, start)

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        for log in machine.broker.services.logs.logs():
            partition, start = log.topic_partition, int(log.log_start_offset)
            before = self._starts.get(partition, 0)
            if start > before:
                self._starts[partition] = start
                self._check(machine, log, before)
                self._records.begins_at(partition, start)

    def _check(self, machine: Machine, log: Any, before: int) -> None:
        config, start = log.config, int(log.log_start_offset)
        left_bytes = sum(segment.size_bytes for segment in log.segments)
        if 0 <= config.retention_bytes <= left_bytes:
            return
        young_ms = machine.world.clock.now_ms() - config.retention_ms
        for offset in range(before, start):
            timestamp_ms = self._records.timestamp_at(log.topic_partition, offset)
            if self._compaction.may_be_missing(log.topic_partition, offset):
                continue  # The cleaner may have removed it before.
            if config.retention_ms < 0 or (timestamp_ms is not None and timestamp_ms >= young_ms):
                raise Violation(
                    TAKEN,
                    f"{log.topic_partition} begins at {start}, with {left_bytes} bytes; {offset} "
                    f"was {timestamp_ms}, and what is younger than {young_ms} stays",
                )


def check_all_is_taken(machine: Machine) -> None:
    """Check long after the last append that no deletable segment is left."""
    last_look_ms = machine.world.clock.now_ms() - LOOKS_WITHIN_MS
    for log in machine.logs():
        config, first = log.config, log.segments[0]
        size_bytes = sum(segment.size_bytes for segment in log.segments)
        is_over = 0 <= config.retention_ms < last_look_ms - first.retention_timestamp_ms
        is_surplus = 0 <= config.retention_bytes <= size_bytes - first.size_bytes
        if config.delete and first.size_bytes and (is_over or is_surplus):
            raise Violation(LEFT, f"{log.topic_partition} has {size_bytes} bytes")
