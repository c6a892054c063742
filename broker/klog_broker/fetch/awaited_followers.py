"""Makes followers fetch a partition soon after this broker has become its leader.

A follower has one outstanding Fetch to a leader, which can wait for ``replica.fetch.wait.max.ms``.
Until that Fetch is answered, the follower cannot ask for the new partition, and producers with
acks=all get no response from the partition. So when this broker becomes the leader of a partition,
it ends the wait of the Fetch of each follower in the ISR. The next fetches of such a follower wait
for at most MOMENT_MS until the follower has fetched the partition. After _LONGEST_MS they wait as
usual again: a follower that has not fetched the partition by then has another problem than a
waiting Fetch.
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
"""The longest wait of a follower's Fetch, in milliseconds, until the follower has fetched the
partition that this broker has begun to lead."""
_LONGEST_MS = 2_000
"""How long, in milliseconds, the fetches of a follower wait only MOMENT_MS. A follower that has not
fetched the partition by then has another problem than a waiting Fetch."""


class FollowerKey(NamedTuple):
    """The purgatory's key for all waiting fetches of one follower."""

    follower: BrokerId


class AwaitedFollowers:
    """The followers that have not yet fetched partitions that this broker has begun to lead. Loop
    thread only."""

    def __init__(self, loop: Loop, purgatory: Purgatory) -> None:
        self._loop = loop
        self._purgatory = purgatory
        self._leaders: dict[BrokerId, deque[tuple[Leader, int]]] = {}
        """By follower, oldest first: the Leader objects of partitions that the follower is to
        fetch, each with the loop's time in ms from which on the follower's fetches wait as usual
        again. A fetched partition is removed only after all older ones."""

    def await_followers_of(self, leader: Leader) -> None:
        """End the wait of the fetches of all followers in the leader's ISR, and let their next
        fetches wait for at most MOMENT_MS until they fetch the leader's partition."""
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
        """Return whether the follower has not yet fetched a partition that this broker has begun to
        lead. Forget the leaders that no longer wait for the follower, oldest first."""
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
