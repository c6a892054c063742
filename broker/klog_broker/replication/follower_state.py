"""A follower of one partition: what it asks its leader for, and what it does with the answer. Pure:
the log's facts, the time, and what others have done are told; what is to be done is returned.

    Fetching --- records: Append ------------------------------> Fetching
             --- another epoch there: Cut ---> Changing -------> Fetching
             --- out of range ----> AskingEnds --- Cut, BeginAnew or nothing
             --- another error, or nonsense ---> Delayed ------> Fetching
             --- its leader epoch is over ---> Superseded; only an order ends that
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klog_broker.log.read.read_results import EpochEndOffset
from klog_broker.replication.truncation import cut_offset, tells_of_divergence
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.layout import LOG_OVERHEAD_BYTES


class FollowedLog(Protocol):
    """A follower's log. See PartitionLog."""

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
    def replaced_before(self) -> Offset: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEndOffset: ...


class Position(NamedTuple):
    """What a follower's Fetch says. Its answer counts only as long as the follower is there."""

    leader_epoch: LeaderEpoch
    """CurrentLeaderEpoch: a leader of another epoch refuses."""
    offset: Offset
    """The follower has all records before this."""
    last_epoch: LeaderEpoch
    """LastFetchedEpoch: of its last batch, or the one that it began itself, without a record."""


class FetchedPart(NamedTuple):
    """A leader's answer for one partition."""

    error: ErrorCode
    records: memoryview
    high_watermark: int
    log_start_offset: int
    diverging: EpochEndOffset | None = None


@dataclass(frozen=True, slots=True)
class Fetching:
    """The next Fetch may be sent, or is on its way."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """Nothing is asked for before that time (replica.fetch.backoff.ms)."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class AskingEnds:
    """The leader is asked by ListOffsets where its log ends and, after that, where it starts."""


@dataclass(frozen=True, slots=True)
class Changing:
    """The log is being cut, or begun anew, and refuses all use until that is done."""

    asked: Position
    records: memoryview | None = None
    """What is to be appended afterwards."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """The leader says that this leader epoch is over: an order with a newer one is on its way."""


Phase = Fetching | Delayed | AskingEnds | Changing | Superseded


class Append(NamedTuple):
    """Append the records as a follower, in the position's leader epoch: that checks CRC, offsets
    and epochs (log/append/follower_append.py). Then call ``appended``, or ``refused`` after an
    error."""

    records: memoryview


class Cut(NamedTuple):
    """Call the log's ``truncate_beside``, also if the log ends there: an epoch of which there is no
    record may have to go. Then call ``changed``."""

    offset: Offset


class BeginAnew(NamedTuple):
    """Drop all records; the log starts and ends at the offset. Then call ``changed``."""

    offset: Offset


class AskEnds(NamedTuple):
    """Ask the leader for its log's end and then its start; call ``ends_told`` or ``refused``."""


class FollowBounds(NamedTuple):
    """The leader's high watermark and log start, as far as this log has come."""

    high_watermark: Offset
    log_start_offset: Offset


Step = Append | Cut | BeginAnew | AskEnds | FollowBounds | None


_FIRST_ORDER_WAIT_MS = 40
_BEFORE_ITS_ORDER = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What a leader answers that has not got the controller's order yet: this broker was told first."""


class FollowerState:
    """A replica that follows the leader of `leader_epoch`. That of another epoch is followed by
    another one, once no change of the log is under way."""

    __slots__ = ("_backoff_ms", "_log", "_order_wait_ms", "leader_epoch", "phase")

    def __init__(self, log: FollowedLog, leader_epoch: LeaderEpoch, *, backoff_ms: int) -> None:
        self.leader_epoch = leader_epoch
        self.phase: Phase = Fetching()
        self._log = log
        self._backoff_ms = backoff_ms
        self._order_wait_ms = _FIRST_ORDER_WAIT_MS

    def position(self, now_ms: int, *, flushes_first: bool) -> Position | None:
        """What the next Fetch says; None while there must be none.

        With `flushes_first` (flush.messages=1) it waits until all that the log has survives a power
        cut: a Fetch tells the leader that this replica has what is before its offset.
        """
        phase = self.phase
        if isinstance(phase, Delayed) and now_ms >= phase.until_ms:
            self.phase = phase = Fetching()
        if not isinstance(phase, Fetching):
            return None
        if flushes_first and self._log.flushed_offset < self._log.log_end_offset:
            return None
        return self._position()

    def _position(self) -> Position:
        log = self._log
        return Position(self.leader_epoch, log.log_end_offset, log.latest_epoch)

    # --- answers of the leader -------------------------------------------------------------------
    def take(self, asked: Position, part: FetchedPart, now_ms: int) -> Step:
        """The answer to a Fetch from `asked`; the step that follows. An answer to an earlier Fetch
        changes nothing."""
        if not isinstance(self.phase, Fetching) or asked != self._position():
            return None
        if part.error is not ErrorCode.NONE:
            return self._take_error(part.error, now_ms)
        if part.diverging is not None:
            return self._take_divergence(asked, part.diverging, now_ms)
        if not len(part.records):
            return self.appended(part)
        log, first_offset = self._log, _first_offset(part.records)
        start = max(log.log_start_offset, part.log_start_offset)
        if 0 <= first_offset < log.log_end_offset <= start:
            # The leader's log starts, since DeleteRecords, in the middle of a batch; nothing that
            # this log has is to stay.
            self.phase = Changing(asked, part.records)
            return BeginAnew(Offset(first_offset))
        return Append(part.records)

    def appended(self, part: FetchedPart) -> FollowBounds:
        """The records are appended. As the logs do not part before this log's end, the watermark
        and the start are the leader's, up to there."""
        log = self._log
        self._order_wait_ms = _FIRST_ORDER_WAIT_MS
        watermark = max(log.high_watermark, min(part.high_watermark, log.log_end_offset))
        start = max(log.log_start_offset, min(part.log_start_offset, watermark))
        return FollowBounds(Offset(watermark), Offset(start))

    def refused(self, now_ms: int) -> None:
        """The log refused the records, or the leader could not be asked for its ends: try again
        later, from where the log ends."""
        self.phase = Delayed(now_ms + self._backoff_ms)

    def _take_error(self, error: ErrorCode, now_ms: int) -> Step:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.phase = AskingEnds()
            return AskEnds()
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self.phase = Superseded()
        elif error in _BEFORE_ITS_ORDER:
            # Most often that comes in moments, and producers wait.
            self.phase = Delayed(now_ms + min(self._order_wait_ms, self._backoff_ms))
            self._order_wait_ms = min(2 * self._order_wait_ms, self._backoff_ms)
        else:
            self.refused(now_ms)
        return None

    def _take_divergence(self, asked: Position, leaders: EpochEndOffset, now_ms: int) -> Step:
        if not tells_of_divergence(leaders, asked.offset, asked.last_epoch):
            self.refused(now_ms)
            return None
        own = self._log.end_offset_for_epoch(leaders.leader_epoch)
        return self._cut(asked, cut_offset(leaders, own, asked.offset))

    def _cut(self, asked: Position, offset: Offset) -> Step:
        log = self._log
        self.phase = Changing(asked)
        if offset < log.log_start_offset:
            return BeginAnew(offset)
        if offset < log.replaced_before:
            # What was seen is lost. A record that the cleaner took away for one of that is not
            # here any more, and the leader has it.
            return BeginAnew(log.log_start_offset)
        return Cut(offset)

    def ends_told(self, leader_epoch: int, leader_start: int, leader_end: int, now_ms: int) -> Step:
        """The leader of `leader_epoch` says where its log starts and ends."""
        if not isinstance(self.phase, AskingEnds) or leader_epoch != self.leader_epoch:
            return None
        asked = self._position()
        if not 0 <= leader_start <= leader_end:
            self.refused(now_ms)
            return None
        if leader_end < asked.offset:
            return self._cut(asked, Offset(leader_end))
        if leader_start > asked.offset:
            self.phase = Changing(asked)
            return BeginAnew(Offset(leader_start))
        # It was out of range only for a moment.
        self.refused(now_ms)
        return None

    def changed(self, now_ms: int) -> Step:
        """The log has been cut or begun anew as asked; what is to be done next."""
        phase = self.phase
        assert isinstance(phase, Changing)
        self.phase = Fetching()
        if phase.records is not None:
            return Append(phase.records)
        if phase.asked == self._position():
            # The same question would find the same answer.
            self.refused(now_ms)
        return None


def _first_offset(records: memoryview) -> int:
    """The first offset of the first batch; too large to be before anything if there is none."""
    if len(records) < LOG_OVERHEAD_BYTES:
        return 1 << 63
    return int.from_bytes(records[:8], "big", signed=True)
