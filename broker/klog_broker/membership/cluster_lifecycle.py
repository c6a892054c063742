"""ClusterLifecycle: the steps by which a broker joins, serves and leaves its cluster.

A broker with zookeeper.connect uses InCluster. A standalone broker uses NoCluster, whose steps need
no other broker. app.py, which builds and runs the broker, calls the same methods of both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from klog_broker.api.families import cluster_handlers, standalone_handlers
from klog_broker.api.services import AllServices
from klog_broker.cluster.fetcher_startup import FollowingServices, start_fetchers
from klog_broker.cluster.isr_requests import IsrRequests, IsrRequestServices
from klog_broker.cluster.known_topics import (
    AllSettingsRead,
    AllTopicsKnown,
    KnownTopics,
    NewTopicSettings,
    TopicsFromController,
)
from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.cluster.topic_requests import TopicRequests
from klog_broker.config import BrokerConfig
from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.coordinator_hosting.transactions import (
    TransactionHosting,
    TransactionParts,
    new_transactions,
    new_transactions_in_cluster,
)
from klog_broker.dispatch.api_handler import ApiHandler
from klog_broker.fetch.follower_fetch import FollowerRefusal, followers_on, no_followers
from klog_broker.lifecycle.log_opening import OpenStore
from klog_broker.membership.membership import Membership
from klog_broker.membership.zookeeper_sessions import OpenSession, configured_sessions
from klog_broker.metrics.zookeeper import ZooKeeperCounts
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

_PARTITION_LIST_PATIENCE_MS = 10_000
"""How long a registered broker waits until the controller has sent the list of the cluster's
partitions. After this time the broker reports itself as ready without the list."""


class ClusterParts(NamedTuple):
    """The functions and objects that differ between a standalone broker and a broker in a cluster.
    app.py builds the broker with them."""

    broker_epoch: Callable[[], int]
    """Returns the broker epoch; -1 while the broker is not registered, or without a cluster."""
    follower_refusal: FollowerRefusal
    known_topics: KnownTopics
    new_topic_settings: NewTopicSettings
    new_transactions: Callable[[TransactionHosting], TransactionParts]
    other_controller: Callable[[], TopicRequests | None]
    """Returns the TopicRequests that send topic creations to the controller, while this is another
    broker or unknown; None while this broker is the controller or standalone, and so creates topics
    itself."""


class ServicesInCluster(FollowingServices, IsrRequestServices, Protocol):
    """The services of the broker that a ClusterLifecycle uses: to fetch from leaders, to request
    ISR changes, and to fetch producer ids."""

    @property
    def producer_ids(self) -> ProducerIds: ...


class ClusterLifecycle(Protocol):
    """The steps by which a broker joins, serves and leaves its cluster.

    app.py, which builds and runs the broker, calls the steps from `join` to `close` in the order in
    which they stand here, in the event loop's thread. `join`, `serve` and `close` may block.
    """

    open_store: OpenStore

    def join(self, files: Files, chance: Chance) -> BrokerId:
        """Find out the ids of the cluster and the broker; returns the broker id.

        Raises CannotStart if ZooKeeper cannot be reached, if the cluster does not accept this
        broker (for example because a migration to KRaft has begun), or if the broker is stopped
        meanwhile. Raises StoreRefused if a data directory belongs to a standalone broker.
        """

    def parts(self) -> ClusterParts:
        """Return the functions and objects that differ from those of a standalone broker
        (ClusterParts), with which app.py builds the broker. Call this once the metadata store is
        open."""

    def begin_following(self, services: ServicesInCluster) -> None:
        """Start to copy the partitions that this broker follows, once the broker is built."""

    def handlers(self, services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
        """The handlers of all APIs that the broker serves."""

    def is_brokers_listener(self, listener: str) -> bool:
        """Whether `listener` is the inter-broker listener of the cluster."""

    def serve(self, services: ServicesInCluster) -> None:
        """Start to exchange requests with other brokers; the listeners must be open.

        Returns once the broker is registered in ZooKeeper. Raises CannotStart if another broker has
        the same id or address, or if the broker is stopped meanwhile.
        """

    def when_ready(self, known_topics: KnownTopics, then: Callable[[], None]) -> None:
        """Call `then`, which reports the broker as ready, once it knows the cluster's partitions.

        Clients of a ready broker may ask for any partition. If the controller has not sent the
        partitions after _PARTITION_LIST_PATIENCE_MS, `then` is called without them. If the broker
        is stopped first, `then` is not called.
        """

    def leave(self, then: Callable[[], None]) -> None:
        """Let other brokers take the lead of this broker's partitions, then call `then`."""

    def close(self, *, cleanly: bool) -> None:
        """Leave the cluster at shutdown. With `cleanly`, wait up to 2 s until ZooKeeper has
        confirmed the end of the broker's session."""

    def without_leader(self, offline: int) -> int:
        """Return the number of partitions without a leader that the broker's metrics report.

        A standalone broker returns `offline`, the number of its partitions that are offline. A
        broker in a cluster returns the controller's count; 0 if it is not the controller.
        """

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        """The partitions that this broker copies, each with its leader's id, for metrics."""

    def zookeeper_counts(self) -> ZooKeeperCounts | None:
        """The state of the ZooKeeper session, for metrics; None for a standalone broker."""

    def controller(self) -> Controller | None:
        """The controller, for metrics, which works only if this broker is elected; None for a
        standalone broker."""


class NoCluster:
    """The ClusterLifecycle (the steps to join, serve and leave a cluster) of a standalone broker,
    which has no cluster."""

    def __init__(self, config: BrokerConfig, open_store: OpenStore) -> None:
        self._broker_id = BrokerId(config["broker.id"])
        self.open_store = open_store

    def join(self, _files: Files, _chance: Chance) -> BrokerId:
        return self._broker_id

    def parts(self) -> ClusterParts:
        return ClusterParts(
            broker_epoch=lambda: -1,
            follower_refusal=no_followers,
            known_topics=AllTopicsKnown(),
            new_topic_settings=AllSettingsRead(),
            new_transactions=new_transactions,
            other_controller=lambda: None,
        )

    def begin_following(self, _services: ServicesInCluster) -> None:
        """Do nothing: a standalone broker follows no partitions."""

    def handlers(self, services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
        return standalone_handlers(services, cluster_id)

    def is_brokers_listener(self, _listener: str) -> bool:
        return False

    def serve(self, _services: ServicesInCluster) -> None:
        """Do nothing: a standalone broker exchanges requests with no other broker."""

    def when_ready(self, _known_topics: KnownTopics, then: Callable[[], None]) -> None:
        then()

    def leave(self, then: Callable[[], None]) -> None:
        then()

    def close(self, *, cleanly: bool) -> None:
        """Do nothing: a standalone broker has no cluster to leave."""

    def without_leader(self, offline: int) -> int:
        return offline

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        return ()

    def zookeeper_counts(self) -> None:
        """Return None: a standalone broker has no ZooKeeper session."""

    def controller(self) -> None:
        """Return None: a standalone broker has no controller."""


class InCluster:
    """The ClusterLifecycle (the steps to join, serve and leave a cluster) of a broker with
    zookeeper.connect."""

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
        """Make the ClusterLifecycle (the steps to join, serve and leave the cluster).
        `open_session` defaults to sessions of kazoo, the ZooKeeper client that klog uses.

        `in_force` returns the broker's settings in force now. `is_wanted` returns False once the
        broker is asked to stop. `on_lost` is called with a sentence when a started broker must stop
        because another broker has registered with its id.
        """

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

    def parts(self) -> ClusterParts:
        peers, to_controller, cluster = self.membership.joined
        store = cluster.store
        requests = TopicRequests(self._in_force, self._loop, to_controller)
        return ClusterParts(
            broker_epoch=self.membership.broker_epoch,
            follower_refusal=followers_on(self._config.inter_broker_listener),
            known_topics=TopicsFromController(
                cluster.controller_requests, lambda: store.view.unreadable, self._loop
            ),
            new_topic_settings=store,
            new_transactions=partial(new_transactions_in_cluster, peers=peers),
            other_controller=lambda: (
                None if store.image.controller_id == self.membership.broker_id else requests
            ),
        )

    def begin_following(self, services: ServicesInCluster) -> None:
        joined = self.membership.joined
        # Fetch the first block of producer ids as soon as the controller has sent its metadata, not
        # when the first producer asks for an id: at that time the controller or ZooKeeper may be
        # unavailable.
        joined.cluster.controller_requests.on_full_metadata.append(
            services.producer_ids.fetch_first
        )
        self._fetchers = start_fetchers(services, joined.peers)

    def handlers(self, services: AllServices, cluster_id: str) -> tuple[ApiHandler, ...]:
        return cluster_handlers(services, cluster_id, self.membership.joined.cluster)

    def is_brokers_listener(self, listener: str) -> bool:
        return listener == self._config.inter_broker_listener

    def serve(self, services: ServicesInCluster) -> None:
        IsrRequests(services, self.membership.joined.to_controller).start()
        self.membership.wait_until_registered()

    def when_ready(self, known_topics: KnownTopics, then: Callable[[], None]) -> None:
        """Call `then` once the controller has sent the list of the cluster's partitions, or after a
        time limit."""

        def over() -> None:
            if not self._is_wanted():
                return
            if not known_topics.has_been_complete:
                _log.warning(
                    "ready, but the controller has sent no partition list within"
                    " %d ms; requests for unknown partitions get retriable errors",
                    _PARTITION_LIST_PATIENCE_MS,
                )
            then()

        if known_topics.has_been_complete:
            then()
        else:
            known_topics.when_complete(over, _PARTITION_LIST_PATIENCE_MS)

    def leave(self, then: Callable[[], None]) -> None:
        self.membership.leave(then)

    def close(self, *, cleanly: bool) -> None:
        self.membership.close(cleanly=cleanly)

    def without_leader(self, _offline: int) -> int:
        return self.membership.joined.cluster.controller.offline_partitions

    def followed(self) -> Iterable[tuple[BrokerId, FollowedPartition]]:
        return () if self._fetchers is None else self._fetchers.followed()

    def zookeeper_counts(self) -> ZooKeeperCounts:
        return self.membership.zookeeper_counts

    def controller(self) -> Controller:
        return self.membership.joined.cluster.controller
