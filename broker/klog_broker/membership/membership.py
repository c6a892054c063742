"""The steps of start-up and shutdown that wait for ZooKeeper, while the event loop runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from klog_broker.cluster.broker_requests import ClusterServices
from klog_broker.cluster.controller_channel import ControllerConnection
from klog_broker.cluster.producer_id_blocks import ProducerIdBlocks
from klog_broker.cluster.role_change_queue import ControllerRequestQueue
from klog_broker.config import BrokerConfig, topic_setting
from klog_broker.config.cluster import GENERATED
from klog_broker.lifecycle.refusals import (
    no_zookeeper,
    refused_by_cluster,
    stopped_while_connecting,
)
from klog_broker.membership.controlled_shutdown import ControlledShutdown
from klog_broker.membership.member import ZooKeeperMember
from klog_broker.metadata.zookeeper.directories import refuse_a_lone_brokers, stored_id
from klog_broker.metadata.zookeeper.join_conversation import NotJoined
from klog_broker.metadata.zookeeper.store import ClusterStore
from klog_broker.metrics.zookeeper import ZooKeeperCounts
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.peers import Peers
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.zookeeper.sessions import OpenSession
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId

# How often a start-up that waits for ZooKeeper checks whether the broker was asked to stop.
_LOOK_MS = 100
# How long a shutdown waits for ZooKeeper to confirm the end of the session. Without confirmation,
# the session may last until its time-out.
_CLOSING_MS = 2_000


class JoinedParts(NamedTuple):
    """The objects that ``open_store`` makes, by which a broker reaches the other brokers of its
    cluster, and ZooKeeper."""

    peers: Peers
    to_controller: ControllerConnection
    cluster: ClusterServices


class Membership:
    """The membership of a broker in a ZooKeeper cluster. For the loop's thread.

    Call ``join``, ``open_store``, ``wait_until_registered``, ``leave`` and ``close`` in this order.
    All but ``leave`` block.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: Loop,
        clock: Clock,
        open_session: OpenSession,
        make_peers: Callable[[BrokerId, str | None], Peers],
        *,
        in_force: Callable[[], BrokerConfig],
        is_wanted: Callable[[], bool],
        on_lost: Callable[[str], None],
    ) -> None:
        """Prepare the membership.

        `make_peers` makes the object that connects to other brokers, from the broker id and the
        local address to connect from (None for any). `in_force` returns the broker's
        settings in force now. `on_lost` is called with a sentence when a started broker must stop
        because another broker has registered with its id.
        """
        self._config = config
        self._loop = loop
        self._clock = clock
        self._joined: JoinedParts | None = None
        self._make_peers = make_peers
        self._is_wanted = is_wanted
        self._on_lost = on_lost
        self._member = ZooKeeperMember(
            loop,
            clock,
            open_session,
            on_in_use=self._in_use,
        )
        self._in_force = in_force
        self._refusal: str | None = None
        self._is_started = False
        self._has_begun = False

    @property
    def joined(self) -> JoinedParts:
        """The objects that ``open_store`` has made, by which this broker reaches other brokers and
        ZooKeeper. Raises InvariantViolation before ``open_store``."""
        if self._joined is None:
            raise InvariantViolation("the broker has not joined its cluster yet")
        return self._joined

    def join(self, files: Files, directories: Sequence[Path], chance: Chance) -> BrokerId:
        """Find out the ids of the cluster and the broker in ZooKeeper; returns the broker id.

        Raises CannotStart if ZooKeeper cannot be reached, if the cluster does not accept this
        broker (for example because a migration to KRaft has begun), or if the broker is stopped
        meanwhile. Raises StoreRefused if a data directory belongs to a standalone broker.
        """
        refuse_a_lone_brokers(files, directories)
        given, connect = self._config["broker.id"], self._config["zookeeper.connect"]
        number = stored_id(files, directories) if given == GENERATED else BrokerId(given)
        member = self._member
        self._has_begun = True
        member.begin_joining(chance, number, self._config["reserved.broker.max.id"])
        patience_ms = self._config["zookeeper.connection.timeout.ms"]
        if not self._wait(lambda: member.outcome is not None, patience_ms):
            raise no_zookeeper(
                connect, patience_ms, was_connected=member.zookeeper_counts.connects > 0
            )
        outcome = member.outcome
        assert outcome is not None
        if isinstance(outcome, NotJoined):
            raise refused_by_cluster(outcome.text)
        return outcome.broker_id

    def open_store(
        self, _files: Files, _directories: Sequence[Path], broker_id: BrokerId, chance: Chance
    ) -> ClusterStore:
        """Open the metadata store, which reads ZooKeeper; returns when it has read all settings.

        A standalone broker opens its store with another function of the same signature (OpenStore).
        Raises CannotStart if ZooKeeper does not answer within zookeeper.connection.timeout.ms, or
        if the broker is stopped meanwhile.
        """
        member, config = self._member, self._config
        listener = config.inter_broker_listener
        peers = self._make_peers(broker_id, _own_address(config))
        store = member.follow_cluster(
            listener,
            peers.connect,
            chance,
            config["controller.socket.timeout.ms"],
            is_unclean=lambda configs: _is_unclean(self._in_force(), configs),
            deletes_topics=config["delete.topic.enable"],
        )
        to_controller = ControllerConnection(
            lambda: store.image, listener, peers.connect, self._loop.call_soon
        )
        orders = ControllerRequestQueue(self.broker_epoch)
        cluster = ClusterServices(store, member.controller, orders, member.changes)
        self._joined = JoinedParts(peers, to_controller, cluster)
        member.election.on_controller.append(lambda _: to_controller.reconnect_if_moved())
        blocks = ProducerIdBlocks(to_controller, broker_id, self.broker_epoch)
        store.allocate = blocks.allocate
        # Wait until the topics' settings are read, because the logs are loaded next, and a log is
        # loaded with the settings of its topic.
        patience_ms = config["zookeeper.connection.timeout.ms"]
        if not self._wait(lambda: store.settings.is_read, patience_ms):
            raise no_zookeeper(config["zookeeper.connect"], patience_ms, was_connected=True)
        return store

    @property
    def broker_id(self) -> BrokerId:
        """The broker id; valid once ``open_store`` was called."""
        return self._member.registration.broker_id

    @property
    def zookeeper_counts(self) -> ZooKeeperCounts:
        """The state and the totals of the broker's ZooKeeper sessions."""
        return self._member.zookeeper_counts

    def broker_epoch(self) -> int:
        """The broker epoch; -1 while the broker is not registered. Valid once ``open_store`` was
        called."""
        return self._member.registration.broker_epoch

    def wait_until_registered(self) -> None:
        """Wait until the broker is registered.

        Raises CannotStart if another broker has registered with the same id, or with an address of
        this broker, or if the broker is stopped meanwhile.
        """
        self._wait(lambda: self._refusal is not None or self._member.sees_itself)
        refusal = self._refusal or self._taken_address()
        if refusal is not None:
            raise refused_by_cluster(refusal)
        self._is_started = True

    def leave(self, then: Callable[[], None]) -> None:
        """Let the controller move this broker's partitions to other leaders, then call `then`.

        `then` is called even if the partitions could not be moved, and at once if
        controlled.shutdown.enable is false.
        """
        config, registration = self._config, self._member.registration
        if not config["controlled.shutdown.enable"]:
            then()
            return
        ControlledShutdown(
            self._loop,
            self.joined.to_controller,
            registration.broker_id,
            lambda: registration.broker_epoch,
            lambda: self._member.store.image.brokers.keys() <= {registration.broker_id},
            lambda: self.zookeeper_counts.is_connected,
            tries=config["controlled.shutdown.max.retries"],
            pause_ms=config["controlled.shutdown.retry.backoff.ms"],
            timeout_ms=config["controller.socket.timeout.ms"],
            then=then,
        ).send_request()

    def close(self, *, cleanly: bool) -> None:
        """Resign as controller and close the ZooKeeper session. Called once.

        With ``cleanly``, wait up to 2 s until ZooKeeper has confirmed the end of the session.
        """
        if not self._has_begun:
            return
        if self._joined is not None:
            self._joined.to_controller.close()
        is_closed = False

        def on_closed() -> None:
            nonlocal is_closed
            is_closed = True

        self._member.close(on_closed)
        if cleanly:
            self._turn_until(lambda: is_closed, _CLOSING_MS)

    # --- reasons not to start in the cluster, and the wait for ZooKeeper -------------------------
    def _taken_address(self) -> str | None:
        """Return a sentence about another registered broker that has an advertised address of this
        broker; None if there is none.

        Brokers must not share an advertised address, because clients would reach only one of them.
        Kafka refuses such a broker, too.
        """
        own_id = self._member.registration.broker_id
        brokers = self._member.store.image.brokers
        own = {(each.host, each.port) for each in brokers[own_id].endpoints}
        for other in brokers.values():
            taken = [each for each in other.endpoints if (each.host, each.port) in own]
            if taken and other.broker_id != own_id:
                return (
                    f"the address {taken[0]} is registered by broker {other.broker_id} already; if"
                    " that was this broker, wait until its session is over; else give one of them"
                    " another address (listeners, advertised.listeners)"
                )
        return None

    def _in_use(self, text: str) -> None:
        self._refusal = text
        if self._is_started:
            self._on_lost(text)

    def _wait(self, is_over: Callable[[], bool], patience_ms: int | None = None) -> bool:
        """Run the event loop until ``is_over()`` is true, for at most ``patience_ms``; return
        whether ``is_over()`` became true in time.

        Raises CannotStart if the broker is asked to stop first.
        """

        def is_over_or_unwanted() -> bool:
            return is_over() or not self._is_wanted()

        if not self._turn_until(is_over_or_unwanted, patience_ms):
            return False
        if not is_over():
            raise stopped_while_connecting()
        return True

    def _turn_until(self, is_over: Callable[[], bool], patience_ms: int | None) -> bool:
        since_ms = self._clock.monotonic_ms()
        while not is_over():
            if patience_ms is not None and self._clock.monotonic_ms() - since_ms >= patience_ms:
                return False
            self._loop.run_turn(_LOOK_MS)
        return True


def _own_address(config: BrokerConfig) -> str | None:
    """The local address for connections to other brokers; None lets the system choose.

    If the inter-broker listener has an address 127.x.x.x, connections to other brokers come from
    this address, which distinguishes this broker from the other brokers on the same machine.
    """
    name = config.inter_broker_listener
    host = next((each.host for each in config.listeners if each.name == name), "")
    return host if host.startswith("127.") else None


def _is_unclean(config: BrokerConfig, configs: Mapping[str, str]) -> bool:
    found: bool = topic_setting(config, configs, "unclean.leader.election.enable")
    return found
