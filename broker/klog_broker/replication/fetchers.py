"""The fetchers of this broker: one for each leader that it follows."""

from collections.abc import Callable

from klog_broker.replication.fetch_requests import FetcherSettings, FollowerIdentity
from klog_broker.replication.fetcher import Fetcher
from klog_broker.replication.follower import FollowedPartition
from klog_broker.replication.partition import Follower, Partition
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import Slices
from klog_broker.runtime.peers import Connect
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.ids import BrokerId, TopicPartition

AddressOf = Callable[[BrokerId], tuple[str, int] | None]
"""Returns the host and port where a broker listens for other brokers; None if unknown."""


class Fetchers:
    """Fetches each partition that this broker follows from the partition's leader, as long as the
    replica's role is Follower. Loop thread only."""

    def __init__(
        self,
        replicas: ReplicaManager,
        identity: FollowerIdentity,
        settings: FetcherSettings,
        *,
        address_of: AddressOf,
        connect: Connect,
        loop: Loop,
        clock: Clock,
        slices: Slices,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._address_of = address_of
        self._connect = connect
        self._loop = loop
        self._clock = clock
        self._slices = slices
        self._warnings = RateLimit()
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._followed: dict[TopicPartition, tuple[FollowedPartition, Fetcher]] = {}
        self._is_closed = False
        replicas.on_follow.append(self._follow)
        replicas.on_unfollow.append(self._unfollow)

    def brokers_changed(self) -> None:
        """Read the leaders' addresses again after a change of the cluster's brokers."""
        for leader, fetcher in self._fetchers.items():
            fetcher.set_address(self._address_of(leader))

    def followed(self) -> list[tuple[BrokerId, FollowedPartition]]:
        """Return all followed partitions that have a leader, each with the leader's id."""
        return [(followed.role.leader, followed) for followed, _ in self._followed.values()]

    def close(self) -> None:
        """Stop all fetching and close the connections, for the shutdown of the broker."""
        self._is_closed = True
        for followed, _ in self._followed.values():
            followed.cancel_delay()
        self._followed.clear()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()

    def _follow(self, partition: Partition) -> None:
        role = partition.role
        if not isinstance(role, Follower) or role.leader < 0 or self._is_closed:
            return
        fetcher = self._fetchers.get(role.leader)
        if fetcher is None:
            fetcher = self._fetchers[role.leader] = Fetcher(
                role.leader,
                self._identity,
                self._settings,
                self._connect,
                loop=self._loop,
                slices=self._slices,
                warnings=self._warnings,
            )
            fetcher.set_address(self._address_of(role.leader))
        followed = FollowedPartition(
            partition,
            self._loop,
            self._clock,
            self._warnings,
            fetcher.on_news,
            backoff_ms=self._settings.backoff_ms,
        )
        self._followed[partition.topic_partition] = (followed, fetcher)
        fetcher.add(followed)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        found = self._followed.pop(topic_partition, None)
        if found is None:
            return
        followed, fetcher = found
        followed.cancel_delay()
        fetcher.remove(followed)
        if fetcher.is_empty:
            # Close the fetcher later, and only if it is still empty: a role change often ends one
            # leader epoch of the follower and begins the next one with the same leader, whose
            # fetcher is then used again.
            self._loop.call_soon(self._close_empty)

    def _close_empty(self) -> None:
        empty = [leader for leader, each in self._fetchers.items() if each.is_empty]
        for leader in empty:
            self._fetchers.pop(leader).close()
