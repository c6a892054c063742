"""A broker's part in its cluster, from the start to the end; one that runs alone has none.

app.py calls the same in both cases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.following_leaders import follow_leaders
from klog_broker.handlers.in_sync_changes import InSyncChanges
from klog_broker.handlers.served import BETWEEN_BROKERS
from klog_broker.handlers.told_topics import was_told_all, when_told_all
from klog_broker.membership import Membership
from klog_broker.opening import OpenStore
from klog_broker.room_settings import real_sessions
from klog_broker.runtime.chance import Chance
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.files import Files
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.peers import Peers
from klog_broker.runtime.sockets import Network
from klog_broker.runtime.zookeeper import OpenSession
from pyspark_klog.ids import BrokerId

_log = logging.getLogger("klog.cluster")

_TOLD_PATIENCE_MS = 10_000
"""How long a broker that is registered waits for the controller before it calls itself ready."""


class ClusterPart(Protocol):
    """Called in this order, in the loop's thread; `join`, `serve` and `close` block."""

    handlers: tuple[ApiHandler, ...]
    """Of what is asked only between brokers."""
    open_store: OpenStore

    def join(self, files: Files, chance: Chance) -> BrokerId:
        """Find out whose cluster it is; the broker's number. CannotStart, StoreRefused."""

    def add_services(self, services: BrokerServices) -> None:
        """Give handlers what only a broker in a cluster has."""

    def serve(self, services: BrokerServices) -> None:
        """Its listeners are open: begin to ask and to answer other brokers. Returns once the broker
        is known to the cluster. CannotStart."""

    def when_told(self, services: BrokerServices, then: Callable[[], None]) -> None:
        """Call back once the broker knows what partitions there are: who is told that it is ready
        may ask for any. Without a controller that takes some seconds. Not if it is told to stop."""

    def leave(self, then: Callable[[], None]) -> None:
        """Have others lead what this broker leads, then call back."""

    def close(self, *, cleanly: bool) -> None:
        """The broker ends."""


class NoCluster:
    """Of a broker that runs alone."""

    handlers: tuple[ApiHandler, ...] = ()

    def __init__(self, config: BrokerConfig, open_store: OpenStore) -> None:
        self._broker_id = BrokerId(config["broker.id"])
        self.open_store = open_store

    def join(self, _files: Files, _chance: Chance) -> BrokerId:
        """See ClusterPart."""
        return self._broker_id

    def add_services(self, _services: BrokerServices) -> None:
        """See ClusterPart."""

    def serve(self, _services: BrokerServices) -> None:
        """See ClusterPart."""

    def when_told(self, _services: BrokerServices, then: Callable[[], None]) -> None:
        """See ClusterPart."""
        then()

    def leave(self, then: Callable[[], None]) -> None:
        """See ClusterPart."""
        then()

    def close(self, *, cleanly: bool) -> None:
        """See ClusterPart."""


class InCluster:
    """Of a broker with zookeeper.connect."""

    handlers = BETWEEN_BROKERS

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
        is_wanted: Callable[[], bool],
        on_lost: Callable[[str], None],
    ) -> None:
        """`open_session` is that of ZooKeeper's client by default; `on_lost` see Membership."""

        def make_peers(broker_id: BrokerId, from_address: str | None) -> Peers:
            return Peers(
                loop,
                helpers,
                network,
                chance,
                client_id=f"broker-{broker_id}",
                from_address=from_address,
            )

        self._log_dirs = config.log_dirs
        self._is_wanted = is_wanted
        self.membership = Membership(
            config,
            loop,
            clock,
            open_session or real_sessions(config),
            make_peers,
            is_wanted=is_wanted,
            on_lost=on_lost,
        )
        self.open_store: OpenStore = self.membership.open_store

    def join(self, files: Files, chance: Chance) -> BrokerId:
        """See ClusterPart."""
        return self.membership.join(files, self._log_dirs, chance)

    def add_services(self, services: BrokerServices) -> None:
        """See ClusterPart."""
        self.membership.join_services(services)
        follow_leaders(services)

    def serve(self, services: BrokerServices) -> None:
        """See ClusterPart."""
        assert services.to_controller is not None and services.cluster is not None
        InSyncChanges(services, services.to_controller).begin()
        self.membership.wait_until_registered()

    def when_told(self, services: BrokerServices, then: Callable[[], None]) -> None:
        """See ClusterPart."""

        def over() -> None:
            if not self._is_wanted():
                return
            if not was_told_all(services):
                _log.warning(
                    "ready, but no controller has told this broker of the cluster's partitions in"
                    " %d ms: what it does not know it answers so that clients ask again",
                    _TOLD_PATIENCE_MS,
                )
            then()

        if was_told_all(services):
            then()
        else:
            when_told_all(services, over, _TOLD_PATIENCE_MS)

    def leave(self, then: Callable[[], None]) -> None:
        """See ClusterPart."""
        self.membership.leave(then)

    def close(self, *, cleanly: bool) -> None:
        """See ClusterPart."""
        self.membership.close(cleanly=cleanly)
