"""A broker's part in its cluster, from the start to the end; a standalone broker has none.

app.py calls the same in both cases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from klog_broker.api.families import cluster_handlers, standalone_handlers
from klog_broker.api.services import AllServices
from klog_broker.cluster.controller_only import TopicRequests
from klog_broker.cluster.following_leaders import FollowingServices, follow_leaders
from klog_broker.cluster.isr_requests import InSyncChanges, InSyncServices
from klog_broker.cluster.known_topics import (
    AllSettingsRead,
    AllTopicsKnown,
    KnownTopics,
    NewTopicSettings,
    TopicsFromController,
)
from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.config import BrokerConfig
from klog_broker.coordinator_hosting.transactions import (
    TransactionHosting,
    TransactionParts,
    new_transactions,
    new_transactions_in_cluster,
)
from klog_broker.dispatch.api_handler import ApiHandler
from klog_broker.fetch.follower_fetch import FollowerRefusal, followers_on, no_followers
from klog_broker.lifecycle.opening import OpenStore
from klog_broker.membership.joining import Membership
from klog_broker.membership.zookeeper_sessions import OpenSession, configured_sessions
from klog_broker.replication.fetchers import Fetchers
from klog_broker.replication.follower import FollowedPartition
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.sockets import Network
from klog_broker.runtime.peers import Peers
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import BrokerId

_log = logging.getLogger("klog.cluster")

_TOLD_PATIENCE_MS = 10_000
"""How long a broker that is registered waits for the controller before it calls itself ready."""


class ClusterSide(NamedTuple):
    """The parts of a broker that a standalone broker and one in a cluster have in other ways."""

    broker_epoch: Callable[[], int]
    """-1 while the broker is not registered, and without a cluster."""
    follower_refusal: FollowerRefusal
    known_topics: KnownTopics
    new_topic_settings: NewTopicSettings
    new_transactions: Callable[[TransactionHosting], TransactionParts]
    other_controller: Callable[[], TopicRequests | None]
    """Asks the controller; None while this broker makes and changes topics itself."""


class ServicesInCluster(FollowingServices, InSyncServices, Protocol):
    """The parts of a broker that its part in the cluster works with."""

    @property
    def producer_ids(self) -> ProducerIds: ...


class ClusterPart(Protocol):
    """Called in this order, in the loop's thread; `join`, `serve` and `close` block."""

    open_store: OpenStore

    def join(self, files: Files, chance: Chance) -> BrokerId:
        """Find out whose cluster it is; the broker's number. CannotStart, StoreRefused."""

    def side(self) -> ClusterSide:
        """The parts that the broker is made with, once its store is open."""

    def begin(self, services: ServicesInCluster) -> None:
        """The broker has its parts: begin to copy what this broker follows."""

    def handlers(self, services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
        """The handlers of all APIs that the broker serves."""

    def is_brokers_listener(self, listener: str) -> bool:
        """Whether the other brokers of the cluster connect to the listener of this name."""

    def serve(self, services: ServicesInCluster) -> None:
        """Its listeners are open: begin to ask and to answer other brokers. Returns once the broker
        is known to the cluster. CannotStart."""

    def when_ready(self, known_topics: KnownTopics, then: Callable[[], None]) -> None:
        """Call back once the broker knows which partitions there are: clients of a broker that is
        ready may ask for any. Without a controller that takes some seconds. Never calls back if
        the broker is to stop."""

    def leave(self, then: Callable[[], None]) -> None:
        """Have others lead what this broker leads, then call back."""

    def close(self, *, cleanly: bool) -> None:
        """The broker ends."""

    def without_leader(self, offline: int) -> int:
        """How many partitions have no leader, if so many of this broker's are ``offline``: for
        metrics."""

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        """The partitions that this broker copies, with the leader of each: for metrics."""


class NoCluster:
    """The part of a standalone broker."""

    def __init__(self, config: BrokerConfig, open_store: OpenStore) -> None:
        self._broker_id = BrokerId(config["broker.id"])
        self.open_store = open_store

    def join(self, _files: Files, _chance: Chance) -> BrokerId:
        return self._broker_id

    def side(self) -> ClusterSide:
        return ClusterSide(
            broker_epoch=lambda: -1,
            follower_refusal=no_followers,
            known_topics=AllTopicsKnown(),
            new_topic_settings=AllSettingsRead(),
            new_transactions=new_transactions,
            other_controller=lambda: None,
        )

    def begin(self, _services: ServicesInCluster) -> None:
        """A standalone broker has nothing to do here."""

    def handlers(self, services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
        return standalone_handlers(services, cluster_id)

    def is_brokers_listener(self, _listener: str) -> bool:
        return False

    def serve(self, _services: ServicesInCluster) -> None:
        """A standalone broker has nothing to do here."""

    def when_ready(self, _known_topics: KnownTopics, then: Callable[[], None]) -> None:
        then()

    def leave(self, then: Callable[[], None]) -> None:
        then()

    def close(self, *, cleanly: bool) -> None:
        """A standalone broker has nothing to do here."""

    def without_leader(self, offline: int) -> int:
        return offline

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        return ()


class InCluster:
    """The part of a broker with zookeeper.connect."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: Loop,
        clock: Clock,
        chance: Chance,
        network: Network,
        helpers: Helpers,
        open_session: OpenSession | None,
        *,
        in_force: Callable[[], BrokerConfig],
        is_wanted: Callable[[], bool],
        on_lost: Callable[[str], None],
    ) -> None:
        """`open_session` is that of ZooKeeper's client by default; `in_force` and `on_lost` see
        Membership."""

        def make_peers(broker_id: BrokerId, from_address: str | None) -> Peers:
            return Peers(
                loop,
                helpers,
                network,
                chance,
                client_id=f"broker-{broker_id}",
                from_address=from_address,
            )

        self._config = config
        self._loop = loop
        self._in_force = in_force
        self._is_wanted = is_wanted
        self._fetchers: Fetchers | None = None
        self.membership = Membership(
            config,
            loop,
            clock,
            open_session or configured_sessions(config),
            make_peers,
            in_force=in_force,
            is_wanted=is_wanted,
            on_lost=on_lost,
        )
        self.open_store: OpenStore = self.membership.open_store

    def join(self, files: Files, chance: Chance) -> BrokerId:
        return self.membership.join(files, self._config.log_dirs, chance)

    def side(self) -> ClusterSide:
        peers, to_controller, cluster = self.membership.joined
        store = cluster.store
        requests = TopicRequests(self._in_force, self._loop, to_controller)
        return ClusterSide(
            broker_epoch=self.membership.broker_epoch,
            follower_refusal=followers_on(self._config.inter_broker_listener),
            known_topics=TopicsFromController(
                cluster.orders, lambda: store.view.unreadable, self._loop
            ),
            new_topic_settings=store,
            new_transactions=partial(new_transactions_in_cluster, peers=peers),
            other_controller=lambda: (
                None if store.image.controller_id == self.membership.broker_id else requests
            ),
        )

    def begin(self, services: ServicesInCluster) -> None:
        joined = self.membership.joined
        # Later there may be no controller, or no ZooKeeper, when the first producer comes.
        joined.cluster.orders.on_told_all.append(services.producer_ids.fetch_first)
        self._fetchers = follow_leaders(services, joined.peers)

    def handlers(self, services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
        return cluster_handlers(services, cluster_id, self.membership.joined.cluster)

    def is_brokers_listener(self, listener: str) -> bool:
        return listener == self._config.inter_broker_listener

    def serve(self, services: ServicesInCluster) -> None:
        InSyncChanges(services, self.membership.joined.to_controller).begin()
        self.membership.wait_until_registered()

    def when_ready(self, known_topics: KnownTopics, then: Callable[[], None]) -> None:
        """A standalone broker has nothing to do here."""

        def over() -> None:
            if not self._is_wanted():
                return
            if not known_topics.has_been_complete:
                _log.warning(
                    "ready, but no controller has told this broker of the cluster's partitions in"
                    " %d ms: what it does not know it answers so that clients ask again",
                    _TOLD_PATIENCE_MS,
                )
            then()

        if known_topics.has_been_complete:
            then()
        else:
            known_topics.when_complete(over, _TOLD_PATIENCE_MS)

    def leave(self, then: Callable[[], None]) -> None:
        self.membership.leave(then)

    def close(self, *, cleanly: bool) -> None:
        self.membership.close(cleanly=cleanly)

    def without_leader(self, _offline: int) -> int:
        return self.membership.joined.cluster.controller.offline_partitions

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        return () if self._fetchers is None else self._fetchers.followed()
