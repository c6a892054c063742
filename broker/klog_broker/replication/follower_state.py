"""The state machine of one partition's follower: it decides the position of the next Fetch, and the
step after each response. Pure: the log's offsets and the time are arguments, the steps are results.

    Fetching --- records: AppendRecords --------------------------------> Fetching
             --- diverging epoch: Truncate or StartOver ---> Changing --> Fetching
             --- out of range ---> AskingEnds --- Truncate, StartOver or no step
             --- another error, or invalid response ---> Delayed --> Fetching
             --- fenced leader epoch ---> Superseded, until the controller changes the role
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication.truncation import is_diverging_epoch, truncation_offset
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.layout import LOG_OVERHEAD_BYTES


class FollowedLog(Protocol):
    """The methods of a PartitionLog that the decisions of the partition's follower use."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def flushed_offset(self) -> Offset: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def latest_epoch(self) -> LeaderEpoch: ...
    @property
    def compacted_before(self) -> Offset: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset: ...


class FetchPosition(NamedTuple):
    """The position of a follower's Fetch. A response to this Fetch is ignored once the follower's
    position has changed."""

    leader_epoch: LeaderEpoch
    """CurrentLeaderEpoch: a leader of another epoch refuses the Fetch."""
    offset: Offset
    """FetchOffset: the follower has all records before this offset."""
    last_epoch: LeaderEpoch
    """LastFetchedEpoch: the newest leader epoch in the follower's log, perhaps an epoch without
    records, for example if this broker led without an append."""


class FetchedPart(NamedTuple):
    """One partition of a leader's Fetch response."""

    error: ErrorCode
    records: memoryview
    high_watermark: int
    log_start_offset: int
    diverging: EpochEndOffset | None = None


@dataclass(frozen=True, slots=True)
class Fetching:
    """The next Fetch may be sent, or is in flight."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """After an error, no Fetch of the partition is sent before `until_ms`, a monotonic time. The
    delay is replica.fetch.backoff.ms, or at first shorter if the leader is not ready yet."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class AskingEnds:
    """The fetch position was out of the leader's range: ListOffsets asks the leader for its log end
    offset and, after that, its log start offset."""


@dataclass(frozen=True, slots=True)
class Changing:
    """The log is being truncated or emptied, and refuses all use until the change is done."""

    requested: FetchPosition
    records: memoryview | None = None
    """The records of the Fetch response, which are appended once the log is empty; None if the
    response had none to append."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """The leader has a newer leader epoch (FENCED_LEADER_EPOCH): wait until the controller assigns
    this replica a role in that epoch."""


Phase = Fetching | Delayed | AskingEnds | Changing | Superseded


class AppendRecords(NamedTuple):
    """Append the records as a follower, in the leader epoch of the FollowerState. The append checks
    CRCs, offsets and epochs (log/append/follower_append.py). Then call ``FollowerState.appended``,
    or ``FollowerState.refused`` after an error."""

    records: memoryview


class Truncate(NamedTuple):
    """Call the log's ``truncate_async``, even if the log already ends at `offset`: an epoch without
    records may have to be removed. Then call ``FollowerState.changed``."""

    offset: Offset


class StartOver(NamedTuple):
    """Drop all records, so that the log starts and ends at `offset`. Then call
    ``FollowerState.changed``."""

    offset: Offset


class AskEnds(NamedTuple):
    """Ask the leader for its log end offset and its log start offset. Then call
    ``FollowerState.handle_ends``, or ``FollowerState.refused`` after an error."""


class FollowBounds(NamedTuple):
    """Raise the log's high watermark and log start offset to these offsets: the leader's ones,
    limited to the offsets of this log."""

    high_watermark: Offset
    log_start_offset: Offset


Step = AppendRecords | Truncate | StartOver | AskEnds | FollowBounds | None


_FIRST_LEADER_WAIT_MS = 40
_LEADER_NOT_READY = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The errors of a leader that perhaps has not received its LeaderAndIsr request yet, while this
broker has received its own."""


class FollowerState:
    """The state of a replica that follows the leader of `leader_epoch`. Each leader epoch has a
    FollowerState of its own, created while no truncation of the log is running."""

    __slots__ = ("_backoff_ms", "_log", "_order_wait_ms", "leader_epoch", "phase")

    def __init__(self, log: FollowedLog, leader_epoch: LeaderEpoch, *, backoff_ms: int) -> None:
        self.leader_epoch = leader_epoch
        self.phase: Phase = Fetching()
        self._log = log
        self._backoff_ms = backoff_ms
        self._order_wait_ms = _FIRST_LEADER_WAIT_MS

    def position(self, now_ms: int, *, flushes_first: bool) -> FetchPosition | None:
        """Return the position of the next Fetch; None while no Fetch may be sent.

        With `flushes_first` (flush.messages=1) the position is None until the whole log is flushed,
        because a Fetch promises the leader that this replica has all records before its offset.
        """
        phase = self.phase
        if isinstance(phase, Delayed) and now_ms >= phase.until_ms:
            self.phase = phase = Fetching()
        if not isinstance(phase, Fetching):
            return None
        if flushes_first and self._log.flushed_offset < self._log.log_end_offset:
            return None
        return self._position()

    def _position(self) -> FetchPosition:
        log = self._log
        return FetchPosition(self.leader_epoch, log.log_end_offset, log.latest_epoch)

    # --- handling the leader's responses, and the end of a truncation ----------------------------
    def handle_response(self, requested: FetchPosition, part: FetchedPart, now_ms: int) -> Step:
        """Handle the response to a Fetch that had the position `requested`, and return the next
        step (such as to append the records, or to truncate the log). A response to an earlier Fetch
        changes nothing."""
        if not isinstance(self.phase, Fetching) or requested != self._position():
            return None
        if part.error is not ErrorCode.NONE:
            return self._take_error(part.error, now_ms)
        if part.diverging is not None:
            return self._take_divergence(requested, part.diverging, now_ms)
        if not len(part.records):
            return self.appended(part)
        log, first_offset = self._log, _first_offset(part.records)
        start = max(log.log_start_offset, part.log_start_offset)
        if 0 <= first_offset < log.log_end_offset <= start:
            # DeleteRecords has moved the leader's log start offset into the middle of a batch. All
            # records of this log lie before that offset: drop them, then append the whole batch.
            self.phase = Changing(requested, part.records)
            return StartOver(Offset(first_offset))
        return AppendRecords(part.records)

    def appended(self, part: FetchedPart) -> FollowBounds:
        """Return the new high watermark and log start offset after the records of a response, if
        it had any, were appended. Up to its end this log is equal to the leader's log, so up to
        there the leader's high watermark and log start offset hold."""
        log = self._log
        self._order_wait_ms = _FIRST_LEADER_WAIT_MS
        watermark = max(log.high_watermark, min(part.high_watermark, log.log_end_offset))
        start = max(log.log_start_offset, min(part.log_start_offset, watermark))
        return FollowBounds(Offset(watermark), Offset(start))

    def refused(self, now_ms: int) -> None:
        """Delay the next Fetch, because the log has refused the records, or the leader's response
        was an error or invalid. The next Fetch starts again at the log end offset."""
        self.phase = Delayed(now_ms + self._backoff_ms)

    def _take_error(self, error: ErrorCode, now_ms: int) -> Step:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.phase = AskingEnds()
            return AskEnds()
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self.phase = Superseded()
        elif error in _LEADER_NOT_READY:
            # The leader usually receives its LeaderAndIsr request within moments, and producers may
            # wait: the first delays are short, and double up to replica.fetch.backoff.ms.
            self.phase = Delayed(now_ms + min(self._order_wait_ms, self._backoff_ms))
            self._order_wait_ms = min(2 * self._order_wait_ms, self._backoff_ms)
        else:
            self.refused(now_ms)
        return None

    def _take_divergence(
        self, requested: FetchPosition, leaders: EpochEndOffset, now_ms: int
    ) -> Step:
        if not is_diverging_epoch(leaders, requested.offset, requested.last_epoch):
            self.refused(now_ms)
            return None
        own = self._log.end_offset_for_epoch(leaders.leader_epoch)
        return self._cut(requested, truncation_offset(leaders, own, requested.offset))

    def _cut(self, requested: FetchPosition, offset: Offset) -> Step:
        log = self._log
        self.phase = Changing(requested)
        if offset < log.log_start_offset:
            return StartOver(offset)
        if offset < log.compacted_before:
            # This truncation removes records that the log cleaner may have used already: the
            # cleaner may have deleted an older record because of a newer one that is removed now.
            # The leader still has the older record, so drop the log and copy it again.
            return StartOver(log.log_start_offset)
        return Truncate(offset)

    def handle_ends(
        self, leader_epoch: int, leader_start: int, leader_end: int, now_ms: int
    ) -> Step:
        """Handle the leader's log start and end offset in `leader_epoch`, which ListOffsets
        returned; return the next step (such as to truncate the log), or None."""
        if not isinstance(self.phase, AskingEnds) or leader_epoch != self.leader_epoch:
            return None
        requested = self._position()
        if not 0 <= leader_start <= leader_end:
            self.refused(now_ms)
            return None
        if leader_end < requested.offset:
            return self._cut(requested, Offset(leader_end))
        if leader_start > requested.offset:
            self.phase = Changing(requested)
            return StartOver(Offset(leader_start))
        # The fetch position is in the leader's range again: fetch from it after a delay.
        self.refused(now_ms)
        return None

    def changed(self, now_ms: int) -> Step:
        """Leave the phase Changing, because the truncation or emptying of the log is done; return
        the next step: to append the records of the response that caused the change, or None."""
        phase = self.phase
        assert isinstance(phase, Changing)
        self.phase = Fetching()
        if phase.records is not None:
            return AppendRecords(phase.records)
        if phase.requested == self._position():
            # The change of the log has not changed the fetch position, so the leader would send the
            # same response again: delay the Fetch.
            self.refused(now_ms)
        return None


def _first_offset(records: memoryview) -> int:
    """Return the base offset of the first batch; 2**63, above all offsets, if there is none."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 1 << 63
    return int.from_bytes(records[:8], "big", signed=True)
