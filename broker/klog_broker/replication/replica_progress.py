"""The progress of a follower, which its leader knows from the follower's fetches. Pure."""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = -1
"""An offset or broker epoch that the follower has not sent."""

NEVER_MS = -(1 << 62)
"""A time in milliseconds that is before all monotonic times."""


class FollowerFetch(NamedTuple):
    """The fields of a follower's Fetch that its leader records as the follower's progress. The
    follower's log has all records before `offset`."""

    offset: int
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    """The epoch of the broker that sent the Fetch; since Fetch version 15 (KIP-903)."""


class FollowerProgress(NamedTuple):
    """The progress of a follower in this leader epoch. Times are monotonic."""

    log_end_offset: int = UNKNOWN
    """The end of the follower's log; UNKNOWN until the follower fetches in this leader epoch."""
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_ms: int = NEVER_MS
    """When the follower last had all records of the leader (`fetched` and `caught_up` set this
    time); for an in-sync follower that has not fetched yet, when the leadership began."""
    fetch_ms: int = NEVER_MS
    """When the follower's latest Fetch arrived at the leader."""
    leader_end_at_fetch: int = UNKNOWN

    def fetched(self, fetch: FollowerFetch, leader_end: int, now_ms: int) -> FollowerProgress:
        """Return the progress after `fetch`, which arrived when the leader's log ended at
        `leader_end`.

        If the follower fetches from the leader's end, it has caught up now. If the follower fetches
        from (or after) where the leader's log ended at the previous fetch, it counts as caught up
        at the time of that previous fetch. Without this rule a follower that keeps pace with a busy
        leader would never count as caught up (Kafka's Replica.updateFetchStateOrThrow).
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
        """Return the progress of a follower that had all records of the leader until now."""
        return FollowerProgress(
            self.log_end_offset,
            self.log_start_offset,
            self.broker_epoch,
            now_ms,
            self.fetch_ms,
            self.leader_end_at_fetch,
        )

    def is_of_older_broker_epoch(self, broker_epoch: int) -> bool:
        """Whether a Fetch with `broker_epoch` was sent before the follower's broker registered
        again. The broker's log may have become shorter since."""
        return UNKNOWN != broker_epoch < self.broker_epoch

    def keeps_pace(self, leader_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has all records, or has last caught up at most `max_lag_ms` ago
        (replica.lag.time.max.ms)."""
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= max_lag_ms
