"""The operations on one log that the log cleaner (klog_broker/compaction) needs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from klog_broker.log.maintenance.cleaned_segment import CleanedSegment
from klog_broker.log.maintenance.segment_swap import SourcesChanged, SwapCallback, Swapper
from klog_broker.log.segment.segment import Segment
from klog_broker.log.state.log_state import LogState
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import Offset


class LastProducerBatch(NamedTuple):
    """The last batch of an active producer, which the cleaner keeps for the producer's state.

    A later start-up can restore the producer state from this batch.
    """

    data_offset: int | None
    """The last offset of the producer's last batch; None if the producer state has no batch,
    because the producer's current epoch has only a transaction marker."""
    producer_epoch: int


class LogCleaning:
    """The cleaner's access to one log.

    All methods are for the event loop's thread, except :meth:`new_segment` and :meth:`checks`.
    """

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
        """Whether the log was truncated or emptied since the cleaning round began: records that the
        cleaner has read may be gone."""
        return self._state.cuts != self._cuts_at_begin

    def begin_round(self) -> None:
        """Begin a cleaning round: retention deletes no segment until :meth:`end_round`."""
        self._state.is_being_cleaned = True
        self._cuts_at_begin = self._state.cuts

    def end_round(self, cleaned_offset: int | None = None) -> None:
        """End the cleaning round, which has cleaned the log up to ``cleaned_offset``; None if the
        round was given up.

        If the log was truncated or emptied during the round, the offset is ignored: records that
        were not cleaned may lie before it now.
        """
        state = self._state
        state.is_being_cleaned = False
        if cleaned_offset is not None and not self.was_cut:
            state.cleaned_offset = Offset(min(cleaned_offset, state.log_end_offset))

    def last_of_producers(self) -> dict[int, LastProducerBatch]:
        """Return the last batch of each active producer, by producer id."""
        return {
            entry.producer_id: LastProducerBatch(
                entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
            )
            for entry in self._state.producers
        }

    def new_segment(self, base_offset: int, now_ms: int) -> CleanedSegment:
        """Begin to write a cleaned segment, the result of the log cleaner. Blocks. Raises
        OSError."""
        state = self._state
        return CleanedSegment(state.files, state.path, base_offset, state.config, now_ms)

    def checks(self) -> RecordChecks:
        """Return the object that scans and checks the log's batches, in Python or in compiled
        code."""
        return self._state.checks()

    def swap(
        self, cleaned: Segment, sources: Sequence[tuple[Segment, int]], done: SwapCallback
    ) -> None:
        """Replace the segments ``sources`` by ``cleaned``; ``done(error)`` is called afterwards.

        ``sources`` are segments with the sizes that they had when the cleaner read them. Raises
        LogStorageError, or SourcesChanged if the segments have changed, or if the log was truncated
        or emptied since the cleaning round began. After an exception the log is unchanged.
        """
        if self.was_cut:
            # The cleaner may have dropped a record in favour of a later record of the same key that
            # the truncation has removed.
            raise SourcesChanged(f"{self._state.topic_partition} was truncated during its cleaning")
        self._swapper.swap(cleaned, sources, done)

    def close(self) -> None:
        """Release the files of a running segment swap (the replacement of segments by a cleaned
        one), because the log is closed."""
        self._swapper.close()
