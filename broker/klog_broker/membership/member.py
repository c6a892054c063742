"""ZooKeeperMember: starts, in the right order, all parts of a broker that use ZooKeeper: the
registration, the controller election, the controller, and the objects for the registered brokers,
the settings and the consumer offsets in ZooKeeper."""

from collections.abc import Callable, Mapping

from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.controller_election import Election
from klog_broker.controller.zookeeper.request_links import BrokerConnections
from klog_broker.controller.zookeeper.topic_changes import ControllerTopicChanges
from klog_broker.metadata.image import BrokerRegistration, new_id
from klog_broker.metadata.zookeeper.join_conversation import JoinConversation, JoinResult, NotJoined
from klog_broker.metadata.zookeeper.registration import Registration
from klog_broker.metadata.zookeeper.registration_reader import BrokerRegistrationReader
from klog_broker.metadata.zookeeper.sessions import Sessions
from klog_broker.metadata.zookeeper.settings_reading import Settings
from klog_broker.metadata.zookeeper.store import ClusterStore
from klog_broker.metrics.zookeeper import ZooKeeperCounts
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.zookeeper.sessions import OpenSession
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.ids import BrokerId, TopicId
from pyspark_klog.znodes.brokers import BrokerRegistration as Znode
from pyspark_klog.znodes.brokers import Endpoint

_UNCLEAN = "unclean.leader.election.enable"


class ZooKeeperMember:
    """A broker in a ZooKeeper cluster: its sessions, registration, election and controller.

    No method blocks; all are for the loop's thread. Call in this order: ``begin_joining``; once it
    has set ``outcome`` to a JoinResult (the ids of the cluster and the broker), ``follow_cluster``,
    which returns the metadata store; the store's ``register_broker``; ``close``.

    A broker takes part in the controller election only while it is registered. When the session of
    the controller expires, that broker resigns as controller before it opens a new session. Without
    a session, a broker continues to serve clients.
    """

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        open_session: OpenSession,
        *,
        on_in_use: Callable[[str], None],
    ) -> None:
        """Prepare the member. If another broker keeps this broker's id registered for longer than
        ZooKeeper takes to end a session, `on_in_use` is called with a sentence about it for the
        operator."""
        self.outcome: JoinResult | NotJoined | None = None
        self.changes: ControllerTopicChanges
        self.controller: Controller
        self.election: Election
        self.registration: Registration
        self.store: ClusterStore
        self._loop = loop
        self._clock = clock
        self._sessions = Sessions(loop, open_session)
        self._on_in_use = on_in_use
        self._follows = False

    @property
    def zookeeper_counts(self) -> ZooKeeperCounts:
        """The state and the totals of the broker's ZooKeeper sessions."""
        return self._sessions.counts

    @property
    def sees_itself(self) -> bool:
        """Whether the broker is registered in ZooKeeper, and this broker's metadata image already
        lists the broker."""
        is_registered = self.registration.broker_epoch >= 0
        return is_registered and self.registration.broker_id in self.store.image.brokers

    def begin_joining(
        self, chance: Chance, broker_id: BrokerId | None, reserved_max_id: int
    ) -> None:
        """Read the cluster id from ZooKeeper, or create it, and if `broker_id` is None, get a
        broker id above `reserved_max_id` there."""

        def joined(outcome: JoinResult | NotJoined) -> None:
            self.outcome = outcome

        self._sessions.use((JoinConversation(chance, broker_id, reserved_max_id, joined),))
        self._sessions.open_first_session()

    def follow_cluster(
        self,
        listener: str,
        connect: Callable[..., EventedConnection],
        chance: Chance,
        request_timeout_ms: int,
        *,
        is_unclean: Callable[[Mapping[str, str]], bool],
        deletes_topics: bool,
    ) -> ClusterStore:
        """Make this broker's controller, and its metadata store, which from now on follows the
        changes in ZooKeeper.

        `listener` is the inter-broker listener, `connect` opens connections to other brokers.
        `is_unclean` returns whether a topic's settings allow unclean leader election.
        `deletes_topics` is delete.topic.enable.
        """
        assert isinstance(self.outcome, JoinResult)
        cluster_id, broker_id = self.outcome.cluster_id, self.outcome.broker_id
        self.store = ClusterStore(self._loop, cluster_id, register=self._register)
        self.election = Election(self._loop, broker_id, self._clock.now_ms)
        self.election.on_controller.append(self.store.view.update_controller)
        self.registration = Registration(
            self._loop,
            broker_id,
            then=self.election,
            on_in_use=self._on_in_use,
        )

        def new_topic_id() -> TopicId:
            return TopicId(new_id(chance))

        links = BrokerConnections(
            listener, connect, self._loop.call_soon, request_timeout_ms, self._loop.now_ms
        )
        self.controller = Controller(
            self._loop,
            broker_id,
            listener,
            send=links.send,
            is_unclean=lambda name: is_unclean(self.store.topic_configs(name)),
            new_topic_id=new_topic_id,
            deletes_topics=deletes_topics,
        )
        self.changes = ControllerTopicChanges(
            self._loop, self.controller, lambda: self.store.image, new_topic_id
        )
        self.store.changes = self.changes
        self.store.on_settings = self._on_settings
        self.election.on_elected.append(self.controller.elected)
        self.election.on_resigned += [self.controller.resigned, links.close]
        self._follows = True
        live = BrokerRegistrationReader(self._loop, self.store.view.update_brokers)
        # At each new connection to ZooKeeper, these objects get the session in this order. The
        # controller stands before the registration, which starts the controller election: an
        # elected controller needs the session.
        store = self.store
        users = (self.controller, self.registration, live, store.settings, store.consumer_offsets)
        self._sessions.use(users)
        return self.store

    def close(self, done: Callable[[], None]) -> None:
        """Resign as controller, and close the ZooKeeper session, so that other brokers need not
        wait for its time-out.

        `done` is called once ZooKeeper has confirmed the end of the session, or cannot be reached.
        """
        if self._follows:
            self.registration.expired()
        self._sessions.close(done)

    def _on_settings(self, found: Settings) -> None:
        if any(_UNCLEAN in settings for settings in found.values()):
            self.controller.elect_again()

    def _register(self, broker: BrokerRegistration) -> None:
        endpoints = tuple(
            Endpoint(each.name, each.host, each.port, each.protocol) for each in broker.endpoints
        )
        self.registration.register(lambda: Znode(endpoints, self._clock.now_ms(), broker.rack))
