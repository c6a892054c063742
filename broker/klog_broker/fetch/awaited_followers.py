"""Makes followers fetch a partition soon after this broker has become its leader.

A follower has one outstanding Fetch to a leader, which can wait for ``replica.fetch.wait.max.ms``.
Until that Fetch is answered, the follower cannot ask for the new partition, and producers with
acks=all get no response from the partition. So the new leadership answers the waiting Fetch at
once. The follower's next fetches wait for at most MOMENT_MS, until the follower has asked for the
partition, or has taken so long that there must be another reason.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_progress import UNKNOWN
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from pyspark_klog.ids import BrokerId

MOMENT_MS = 10
"""The longest wait of a Fetch, in milliseconds, while a new leadership waits for its follower."""
_LONGEST_MS = 2_000
"""How long, in milliseconds, a leadership waits for its followers to fetch. A follower that takes
longer must have another reason."""


class FollowerKey(NamedTuple):
    """The purgatory's key for all waiting fetches of one follower."""

    follower: BrokerId


class AwaitedFollowers:
    """The followers that new leaderships of this broker wait for. Loop thread only."""

    def __init__(self, loop: Loop, purgatory: Purgatory) -> None:
        self._loop = loop
        self._purgatory = purgatory
        self._leaders: dict[BrokerId, deque[tuple[Leader, int]]] = {}
        """By follower: the leaderships that wait for it, and the end of their wait in
        milliseconds."""

    def await_followers_of(self, leader: Leader) -> None:
        """Wait for the followers in the ISR of a new leadership, and answer their waiting fetches
        now."""
        until_ms = self._loop.now_ms() + _LONGEST_MS
        for follower in leader.replicas.in_sync.members:
            if follower != leader.broker_id:
                self._is_awaited(follower)
                self._leaders.setdefault(follower, deque()).append((leader, until_ms))
                self._purgatory.expire_all(FollowerKey(follower))

    def longest_wait_ms(self, follower: BrokerId, asked_ms: int) -> int:
        """Return how long the follower's Fetch, which asks for `asked_ms`, may wait, in
        milliseconds."""
        return min(asked_ms, MOMENT_MS) if self._is_awaited(follower) else asked_ms

    def _is_awaited(self, follower: BrokerId) -> bool:
        """Return whether a leadership waits for the follower; forget leaderships that wait no
        longer, oldest first."""
        leaders = self._leaders.get(follower)
        if leaders is None:
            return False
        now_ms = self._loop.now_ms()
        while leaders:
            leader, until_ms = leaders[0]
            progress = leader.replicas.followers.get(follower)
            is_away = progress is not None and progress.log_end_offset == UNKNOWN
            if leader.ended is None and is_away and now_ms < until_ms:
                return True
            leaders.popleft()
        del self._leaders[follower]
        return False
