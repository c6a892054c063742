"""Applies to a partition's log the steps (such as an append or a truncation) that FollowerState,
the state machine of the partition's follower, decides."""

import logging
from collections.abc import Callable
from functools import partial

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.replication.fetch_session import Key, RequestedPosition
from klog_broker.replication.follower_state import (
    AppendRecords,
    AskEnds,
    AskingEnds,
    Delayed,
    FetchedPart,
    Fetching,
    FetchPosition,
    FollowBounds,
    FollowerState,
    StartOver,
    Step,
    Truncate,
)
from klog_broker.replication.partition import Follower, Partition
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.errors import ErrorCode, KlogError

_log = logging.getLogger("klog.replication")


class FollowedPartition:
    """A partition during one Follower role of its replica.

    This object calls ``on_news(key)``, a callback of the fetcher, when the result of
    :meth:`next_position` may have changed. :meth:`handle_response`, :meth:`handle_ends` and
    :meth:`handle_unknown_ends` need not call it, because their caller reads the position
    afterwards. Loop thread only.
    """

    def __init__(
        self,
        partition: Partition,
        loop: Loop,
        clock: Clock,
        warnings: RateLimit,
        on_news: Callable[[Key], None],
        *,
        backoff_ms: int,
    ) -> None:
        role, log = partition.role, partition.log
        assert isinstance(role, Follower) and log is not None
        self.partition = partition
        self.role = role
        self.key: Key = (partition.topic_id, partition.topic_partition.partition)
        self._log: PartitionLog = log
        self._state = FollowerState(log, role.leader_epoch, backoff_ms=backoff_ms)
        self._loop = loop
        self._clock = clock
        self._warnings = warnings
        self._on_news = on_news
        self._timer: Timer | None = None
        self._leader_watermark = 0
        self.is_flushing = False
        """Whether the next Fetch of this partition waits until the log is flushed
        (flush.messages=1)."""

    def __repr__(self) -> str:
        return f"FollowedPartition({self.partition.topic_partition}, {self._state.phase})"

    @property
    def is_current(self) -> bool:
        """Whether the replica still has the Follower role for which this object was made."""
        return self.partition.role is self.role

    @property
    def needs_ends(self) -> bool:
        """Whether the next request for this partition is ListOffsets, because the last fetch
        position was out of the leader's range."""
        return self.is_current and isinstance(self._state.phase, AskingEnds)

    @property
    def lag(self) -> int:
        """By how many offsets the end of this log is below the leader's last known high watermark;
        0 if it is not below."""
        return max(self._leader_watermark - self._log.log_end_offset, 0)

    def cancel_delay(self) -> None:
        """Cancel the timer that ends the delay of the next Fetch after an error. Called when the
        partition is no longer fetched, and before another delay begins."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def next_position(self) -> RequestedPosition | None:
        """Return the fetch position (offset and leader epochs) and the log start offset for the
        next Fetch; None if the partition must not be fetched now."""
        log = self._log
        if not self.is_current or log.is_offline:
            return None
        flushes_first = log.config.responses_wait_for_flush
        position = self._state.position(self._loop.now_ms(), flushes_first=flushes_first)
        if position is not None:
            return RequestedPosition(position, log.log_start_offset)
        if isinstance(self._state.phase, Fetching):
            self._await_flush()
        return None

    # --- responses of the leader -----------------------------------------------------------------
    def handle_response(self, requested: FetchPosition, part: FetchedPart) -> None:
        """Handle the leader's response to a Fetch that had the position ``requested``.

        The memory of ``part.records`` must stay unchanged until this method returns. If a helper
        thread has to empty the log before the records are appended, the memory must stay unchanged
        until the append.
        """
        if self.is_current and not self._log.is_offline:
            if part.error is ErrorCode.NONE:
                self._leader_watermark = part.high_watermark
            step = self._state.handle_response(requested, part, self._loop.now_ms())
            if step is None and part.error is not ErrorCode.NONE:
                self._warn(f"the leader answers {part.error.name}: {part.error.message}")
            self._perform(step, part)

    def handle_ends(self, leader_epoch: int, start: int, end: int) -> None:
        """Handle the leader's log start and end offset from ListOffsets; ignore them if
        `leader_epoch` is not the epoch that this broker follows."""
        if self.is_current and not self._log.is_offline:
            step = self._state.handle_ends(leader_epoch, start, end, self._loop.now_ms())
            self._perform(step, None)

    def handle_unknown_ends(self) -> None:
        """Delay the next Fetch, because ListOffsets did not return the leader's log start and end
        offset."""
        if self.needs_ends:
            self._refused("ListOffsets did not return the leader's log start and end offset")

    # --- performing the steps that FollowerState returns -----------------------------------------
    def _perform(self, step: Step, part: FetchedPart | None) -> None:
        log = self._log
        if isinstance(step, AppendRecords):
            assert part is not None
            if not self._append(step.records):
                return
            step = self._state.appended(part)
        if isinstance(step, FollowBounds):
            log.set_high_watermark(step.high_watermark)
            if step.log_start_offset > log.log_start_offset:
                log.delete_records_before(step.log_start_offset)
        elif isinstance(step, Truncate):
            self._log_change(f"truncating the log to offset {step.offset}")
            log.truncate_async(step.offset, partial(self._changed, part))
        elif isinstance(step, StartOver):
            self._log_change(f"emptying the log, to copy it again from offset {step.offset}")
            now_ms = self._clock.now_ms()
            log.start_over_async(step.offset, now_ms, partial(self._changed, part))
        elif isinstance(step, AskEnds):
            pass  # the fetcher reads `needs_ends`, and sends ListOffsets
        else:
            self._await_end_of_delay()

    def _append(self, records: memoryview) -> bool:
        log = self._log
        space = log.log_directory.space
        try:
            if space.refuses_state:
                raise LogStorageError(space.refusal(self.partition.topic_partition))
            log.append_as_follower(
                records, leader_epoch=self.role.leader_epoch, now_ms=self._clock.now_ms()
            )
        except KlogError as error:
            self._refused(str(error))
            return False
        return True

    def _refused(self, why: str) -> None:
        self._state.refused(self._loop.now_ms())
        self._warn(why)
        self._await_end_of_delay()

    def _warn(self, why: str) -> None:
        if self._warnings.allows(self._loop.now_ms()):
            _log.warning(
                "partition=%s leader=%d not replicated for now: %s%s",
                self.partition.topic_partition,
                self.role.leader,
                why,
                self._warnings.pop_suppressed_note(),
            )

    def _changed(self, part: FetchedPart | None, error: BaseException | None) -> None:
        """Append the records in ``part``, or fetch again (after a delay if the fetch position is
        the same as before), after the log was truncated or emptied. After an error the log is
        offline, and this method does nothing."""
        if error is None and self.is_current and not self._log.is_offline:
            self._perform(self._state.changed(self._loop.now_ms()), part)
            self._on_news(self.key)

    def _log_change(self, what: str) -> None:
        log = self._log
        _log.info(
            "partition=%s leader=%d leader_epoch=%d log_start_offset=%d log_end_offset=%d %s",
            self.partition.topic_partition,
            self.role.leader,
            self.role.leader_epoch,
            log.log_start_offset,
            log.log_end_offset,
            what,
        )

    # --- delaying the next Fetch after an error, or until the log is flushed ---------------------
    def _await_end_of_delay(self) -> None:
        phase = self._state.phase
        if isinstance(phase, Delayed):
            self.cancel_delay()
            self._timer = self._loop.call_at(phase.until_ms, self._delay_is_over)

    def _delay_is_over(self) -> None:
        self._timer = None
        self._on_news(self.key)

    def _await_flush(self) -> None:
        if not self.is_flushing:
            self.is_flushing = True
            self._log.when_flushed(self._log.log_end_offset, self._flushed)

    def _flushed(self, _error: BaseException | None) -> None:
        # Ignore the error: the log is offline or was truncated, which `next_position` takes into
        # account.
        self.is_flushing = False
        self._on_news(self.key)
