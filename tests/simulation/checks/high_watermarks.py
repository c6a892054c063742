"""A log's offsets never go back while a broker runs, and readers see nothing too early."""

from typing import Any

from pyspark_klog.ids import TopicId, TopicPartition
from tests.simulation.machine import Death, Machine, Watcher
from tests.simulation.world import Violation

BACK = "offsets never go back"
EARLY = "no reader sees a record before it is safe"
BUGS = "no request meets a bug"


class Marks(Watcher):
    """Inspects the marks of every log after every turn."""

    def __init__(self) -> None:
        self._last: dict[tuple[TopicPartition, TopicId], tuple[int, int, int, int]] = {}

    def on_start(self, machine: Machine) -> None:
        self._last.clear()

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        for log in machine.broker.services.logs.logs():
            marks = (
                int(log.high_watermark),
                int(log.log_end_offset),
                int(log.log_start_offset),
                int(log.flushed_offset),
            )
            key = (log.topic_partition, log.topic_id)
            before = self._last.get(key)
            if marks == before:
                continue
            self._last[key] = marks
            if before is not None and self._went_back(log, before, marks):
                raise Violation(BACK, f"{log.topic_partition} went from {before} to {marks}")
            watermark, end, start, flushed = marks
            if not start <= watermark <= end or flushed > end:
                raise Violation(EARLY, f"{log.topic_partition} has {marks}")
            if self._waits_for_flush(machine, log) and watermark > flushed:
                raise Violation(EARLY, f"{log.topic_partition} shows unsynced records: {marks}")

    def _went_back(self, _log: Any, before: tuple[int, ...], marks: tuple[int, ...]) -> bool:
        return any(new < old for new, old in zip(marks, before, strict=True))

    def _waits_for_flush(self, _machine: Machine, log: Any) -> bool:
        waits: bool = log.config.responses_wait_for_flush
        return waits

    def on_death(self, machine: Machine, death: Death) -> None:
        assert machine.broker is not None
        bugs = machine.broker.services.requests.bugs
        if bugs.total:
            raise Violation(BUGS, str(dict(bugs.counts)))
