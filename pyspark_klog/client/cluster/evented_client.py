"""The connections of one client to a cluster and the cluster's metadata, in an event loop.

All methods must be called in the loop's thread; none of them waits.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyspark_klog.client.cluster.metadata import ClusterView, TopicInfo, metadata_request
from pyspark_klog.client.cluster.metadata_refresh import MetadataRefresh
from pyspark_klog.client.errors import (
    ConnectionFailed,
    LeaderUnknown,
    NoBrokerAvailable,
    SettingError,
)
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address, read_addresses
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.event_loop import Connector, EventLoop, LoopTimer
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings
from pyspark_klog.client.transport.pending_request import Build, OnDone
from pyspark_klog.client.transport.preparation import Prepare
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from pyspark_klog.protocol.message import Response

R = TypeVar("R", bound=Response)


class EventedClient:
    """Connections to a cluster, one to each broker, and metadata of the topics that it follows.

    ``on_metadata`` is called after each response with metadata, ``on_failure`` with the error of
    each failed request for metadata.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        loop: EventLoop,
        connector: Connector,
        prepare: Prepare,
        random: Callable[[], float],
        on_metadata: Callable[[], None],
        on_failure: Callable[[KlogError], None],
        may_create_topics: bool = False,
    ) -> None:
        if settings["bootstrap.servers"] is None:
            raise SettingError("bootstrap.servers is missing; expected host:port of a broker")
        self.settings = settings
        self.view = ClusterView()
        self._bootstrap = read_addresses(settings.text("bootstrap.servers"))
        self._loop = loop
        self._connector = connector
        self._prepare = prepare
        self._random = random
        self._on_metadata = on_metadata
        self._on_failure = on_failure
        self._may_create = may_create_topics
        self._connection_settings = EventedSettings(
            client_id=settings.text("client.id"),
            setup_timeout_ms=settings.number("socket.connection.setup.timeout.ms"),
            reconnect=_backoff(settings, "reconnect.backoff"),
            max_in_flight=settings.number("max.in.flight.requests.per.connection"),
        )
        self._refresh = MetadataRefresh(
            settings.number("metadata.max.age.ms"), _backoff(settings, "retry.backoff"), random
        )
        self._connections: dict[Address, EventedConnection] = {}
        self._failed: set[Address] = set()
        """The addresses whose last request failed because of the connection."""
        self._timer: LoopTimer | None = None
        self._is_closed = False

    def close(self) -> None:
        """Close all connections: requests without a response fail with ConnectionFailed."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in self._connections.values():
            connection.close()

    # --- requests --------------------------------------------------------------------------------
    def send_to_broker(
        self,
        broker_id: int,
        response_class: type[R],
        build: Build,
        on_done: OnDone[R],
        timeout_ms: int,
        *,
        low: int = 0,
        high: int | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request to a broker by its id (`EventedConnection.send` has the arguments).
        ``on_done`` gets LeaderUnknown if the metadata have no such broker."""
        address = self.view.brokers.get(broker_id)
        if address is None:
            error = LeaderUnknown(f"broker {broker_id} is not in the cluster's metadata now")
            self._loop.call_soon(partial(on_done, None, error))
            return
        self._send(address, response_class, build, on_done, timeout_ms, low, high, expects_response)

    def send_to_any(
        self,
        response_class: type[R],
        build: Build,
        on_done: OnDone[R],
        timeout_ms: int,
        *,
        low: int = 0,
        high: int | None = None,
    ) -> None:
        """Send a request once, to the broker with the fewest unanswered requests; a broker whose
        last request failed comes after all others."""
        addresses = dict.fromkeys([*self.view.brokers.values(), *self._bootstrap])
        known = set(self.view.brokers.values())

        def place(address: Address) -> tuple[bool, bool, int, float]:
            connection = self._connections.get(address)
            unanswered = 0 if connection is None else connection.unanswered
            # The bootstrap servers may be names of a balancer, or brokers that have gone.
            is_bootstrap = bool(known) and address not in known
            return address in self._failed, is_bootstrap, unanswered, self._random()

        best = min(addresses, key=place)
        self._send(best, response_class, build, on_done, timeout_ms, low, high)

    def _send(
        self,
        address: Address,
        response_class: type[R],
        build: Build,
        on_done: OnDone[R],
        timeout_ms: int,
        low: int,
        high: int | None,
        expects_response: bool = True,
    ) -> None:
        def on_response(response: R | None, error: KlogError | None) -> None:
            if isinstance(error, ConnectionFailed):
                self._failed.add(address)
            elif response is not None:
                self._failed.discard(address)
            on_done(response, error)

        self._connection(address).send(
            response_class,
            build,
            on_response,
            timeout_ms,
            low=low,
            high=high,
            expects_response=expects_response,
        )

    def _connection(self, address: Address) -> EventedConnection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = EventedConnection(
                address,
                self._connection_settings,
                loop=self._loop,
                connector=self._connector,
                random=self._random,
                prepare=self._prepare,
            )
        return found

    # --- metadata --------------------------------------------------------------------------------
    def follow(self, topic: str) -> None:
        """Keep metadata of a topic in `view` from now on."""
        self._refresh.follow(topic, self._loop.now_ms())
        self._ask_when_due()

    def unfollow(self, topic: str) -> None:
        """Stop asking for a topic."""
        self._refresh.unfollow(topic)

    def doubt(self, topic: str) -> None:
        """Ask again for a topic that a broker does not lead, or does not know, any more."""
        self._refresh.doubt(topic, self._loop.now_ms())
        self._ask_when_due()

    def confirm(self, topic: str) -> None:
        """Note that a leader of the topic has answered without an error."""
        self._refresh.confirm(topic)

    def _ask_when_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._refresh.next_ms()
        if due_ms is not None and not self._is_closed:
            self._timer = self._loop.call_at(due_ms, self._ask)

    def _ask(self) -> None:
        self._timer = None
        names = self._refresh.begin(self._loop.now_ms())
        if not names:
            self._ask_when_due()
            return
        self.send_to_any(
            MetadataResponse,
            lambda version: metadata_request(names, version, self._may_create),
            partial(self._on_response, names),
            self.settings.number("request.timeout.ms"),
        )

    def _on_response(
        self, names: list[str], response: MetadataResponse | None, error: KlogError | None
    ) -> None:
        newer = ClusterView() if response is None else ClusterView.of(response)
        if error is None and not newer.brokers:
            # A broker that has just started may not have received the list of brokers yet.
            error = NoBrokerAvailable("the cluster's metadata names no broker")
        if error is not None:
            self._refresh.failed(self._loop.now_ms())
            self._ask_when_due()
            self._on_failure(error)
            return
        # Before Metadata version 4 the response may have all topics: keep only those asked for.
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = {name: newer.topics.get(name, TopicInfo(name, error=absent)) for name in names}
        self.view = self.view.merged(replace(newer, topics=asked))
        self._refresh.answered()
        self._ask_when_due()
        self._on_metadata()


def _backoff(settings: ClientSettings, name: str) -> Backoff:
    return Backoff(settings.number(f"{name}.ms"), settings.number(f"{name}.max.ms"))
