"""What the log cleaner (klog_broker/compaction) needs of one log, and does to it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.maintenance.cleaned_segment import CleanedSegment
from klog_broker.log.maintenance.segment_swap import Done, SourcesChanged, Swapper
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.log_state import LogState
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import Offset


class LastOfProducer(NamedTuple):
    """What must stay of an active producer, so that a later start knows its state."""

    data_offset: int | None
    """The last offset of its last batch; None if its last is a marker."""
    producer_epoch: int


class LogCleaning:
    """Of one log. For the loop's thread but for :meth:`new_segment` and :meth:`checks`."""

    def __init__(
        self,
        state: LogState,
        helpers: Helpers,
        remove_later: Callable[[list[Path], int], None],
    ) -> None:
        self._state = state
        self._cuts_at_begin = 0
        self._swapper = Swapper(state, helpers, remove_later)

    @property
    def was_cut(self) -> bool:
        """Whether records were cut off since the round began: what it has read may be gone."""
        return self._state.cuts != self._cuts_at_begin

    def begin(self) -> None:
        """A round begins: retention deletes no segment until :meth:`end`."""
        self._state.is_being_cleaned = True
        self._cuts_at_begin = self._state.cuts

    def end(self, cleaned_offset: int | None = None) -> None:
        """The round is over. It has cleaned up to ``cleaned_offset``; None if it was given up.
        Once the log was cut other records may lie there."""
        state = self._state
        state.is_being_cleaned = False
        if cleaned_offset is not None and not self.was_cut:
            state.cleaned_offset = Offset(min(cleaned_offset, state.log_end_offset))

    def last_of_producers(self) -> dict[int, LastOfProducer]:
        """By producer id."""
        return {
            entry.producer_id: LastOfProducer(
                entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
            )
            for entry in self._state.producers
        }

    def new_segment(self, base_offset: int, now_ms: int) -> CleanedSegment:
        """Begin to write one. Blocks. OSError."""
        state = self._state
        return CleanedSegment(state.files, state.path, base_offset, state.config, now_ms)

    def checks(self) -> RecordChecks:
        """What records are checked with."""
        return self._state.checks()

    def swap(self, cleaned: Segment, sources: Sequence[tuple[Segment, int]], done: Done) -> None:
        """As :meth:`Swapper.swap`; SourcesChanged also if the log was cut since the round began."""
        if self.was_cut:
            # A record may have gone for a later one that went with the cut.
            raise SourcesChanged(f"{self._state.topic_partition} was cut while it was cleaned")
        self._swapper.swap(cleaned, sources, done)

    def close(self) -> None:
        """As :meth:`Swapper.close`."""
        self._swapper.close()
