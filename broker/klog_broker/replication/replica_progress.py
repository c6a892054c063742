"""How far a follower has come, as its leader knows it from its fetches. Pure."""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1
"""An offset, or a broker epoch, that a follower has not told."""

NEVER_MS = -(1 << 62)
"""A time before all monotonic times."""


class FollowerFetch(NamedTuple):
    """What a Fetch of a follower says of its log: it has all records before `offset`."""

    offset: int
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    """Since Fetch 15 (KIP-903): the life of the broker that sent it."""


class FollowerProgress(NamedTuple):
    """How far a follower has come in this leader epoch. Times are monotonic."""

    log_end_offset: int = UNKNOWN
    """UNKNOWN until the follower fetches in this epoch."""
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_ms: int = NEVER_MS
    """When the follower last had all records of the leader, see `fetched`."""
    fetch_ms: int = NEVER_MS
    """When it fetched last."""
    leader_end_at_fetch: int = UNKNOWN

    def fetched(self, fetch: FollowerFetch, leader_end: int, now_ms: int) -> FollowerProgress:
        """The follower sends `fetch`, while the leader's log ends at `leader_end`.

        The follower has caught up now if it asks for the leader's end. If it asks for where the
        leader's log ended at the fetch before, it had caught up at that fetch: a follower that
        keeps pace with a busy leader is never at the end (Kafka's Replica.updateFetchStateOrThrow).
        """
        caught_up_ms = self.caught_up_ms
        if fetch.offset >= leader_end:
            caught_up_ms = now_ms
        elif self.leader_end_at_fetch >= 0 and fetch.offset >= self.leader_end_at_fetch:
            caught_up_ms = max(caught_up_ms, self.fetch_ms)
        return FollowerProgress(
            fetch.offset,
            fetch.log_start_offset,
            fetch.broker_epoch,
            caught_up_ms,
            now_ms,
            leader_end,
        )

    def caught_up(self, now_ms: int) -> FollowerProgress:
        """As it is known now, of a follower that had all records of the leader until now."""
        return FollowerProgress(
            self.log_end_offset,
            self.log_start_offset,
            self.broker_epoch,
            now_ms,
            self.fetch_ms,
            self.leader_end_at_fetch,
        )

    def is_of_earlier_life(self, broker_epoch: int) -> bool:
        """Whether a Fetch with that epoch was sent before the follower's broker was last started:
        its log may be shorter now."""
        return UNKNOWN != broker_epoch < self.broker_epoch

    def keeps_pace(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has what the leader had at some time in the last `max_lag_ms`
        (replica.lag.time.max.ms)."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms
