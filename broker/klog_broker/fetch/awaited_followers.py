"""Followers that a new leadership waits for.

A follower has one Fetch at a time with a leader, and that may be held for
``replica.fetch.wait.max.ms``. When the broker begins to lead another partition it does so in vain:
the follower has to name that partition first, and until then no producer with acks=all is answered
there. So what is held is answered, and the follower's next ones are held for moments alone until it
has named the partition, or has taken so long that something else must be wrong.
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
"""For so long a follower's Fetch is held while a partition waits for that follower."""
_LONGEST_MS = 2_000
"""Of a leadership: later its followers are taken to be away from it for reasons of their own."""


class FollowerKey(NamedTuple):
    """The purgatory's key of all that is held for a follower."""

    follower: BrokerId


class AwaitedFollowers:
    """Those of one broker. Loop thread only."""

    def __init__(self, loop: Loop, purgatory: Purgatory) -> None:
        self._loop = loop
        self._purgatory = purgatory
        self._leaders: dict[BrokerId, deque[tuple[Leader, int]]] = {}
        """By follower: the leaderships that wait, and until when, in milliseconds."""

    def begin(self, leader: Leader) -> None:
        """A leadership begins: acks=all waits for all that are in sync."""
        until_ms = self._loop.now_ms() + _LONGEST_MS
        for follower in leader.replicas.in_sync.members:
            if follower != leader.broker_id:
                self._is_awaited(follower)
                self._leaders.setdefault(follower, deque()).append((leader, until_ms))
                self._purgatory.expire_all(FollowerKey(follower))

    def holds_ms(self, follower: BrokerId, asked_ms: int) -> int:
        """For how long the follower's Fetch may be held, which asks for `asked_ms`."""
        return min(asked_ms, MOMENT_MS) if self._is_awaited(follower) else asked_ms

    def _is_awaited(self, follower: BrokerId) -> bool:
        """Forgets who no longer waits for it, the oldest first."""
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
