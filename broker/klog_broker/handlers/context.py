"""What a handler is given besides the request: who asks, when, how to answer, and the broker.

A handler returns its response, or returns None and answers later through ``context.reply``: exactly
once, by ``send``, ``skip`` or ``close``. Until then a request that waits lies in the purgatory.
An answer that can become long is a generator of steps (``AnswerSteps``), which the dispatcher takes
in slices.
A request's records are views of the receive buffer, valid until the turn's append phase ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from klog_broker.config import BrokerConfig
from klog_broker.controller.controller import Controller
from klog_broker.controller.to_controller import ToController
from klog_broker.controller.topic_changes import TopicChanges
from klog_broker.coordinator.group.coordinator import GroupCoordinator
from klog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from klog_broker.handlers.awaited_followers import AwaitedFollowers
from klog_broker.handlers.bugs import BugReports
from klog_broker.handlers.fetch_convert import DownConversions
from klog_broker.handlers.fetch_sessions import FetchSessions
from klog_broker.handlers.leader_holders import LeaderHolders
from klog_broker.handlers.order_queue import OrderQueue
from klog_broker.handlers.producer_ids import ProducerIds
from klog_broker.log.log_manager import LogManager
from klog_broker.metadata.interface import MetadataStore
from klog_broker.metadata.zookeeper.store import ClusterStore
from klog_broker.metrics.in_sync import InSyncCounts
from klog_broker.replication.fetchers import Fetchers
from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.chance import Chance
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.peers import Peers
from klog_broker.runtime.purgatory import Purgatory
from klog_broker.runtime.rate_limit import RateLimit
from klog_broker.runtime.slices import Slices
from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.headers import RequestHeader
from pyspark_klog.protocol.message import Response


class Reply(Protocol):
    """The place of one answer in its connection's order. Used exactly once."""

    @property
    def is_open(self) -> bool:
        """False once the connection is gone: nobody waits for this answer any more."""

    def send(self, response: Response) -> None:
        """Answers. The response leaves once all earlier responses of the connection have left."""

    def send_parts(self, parts: list[Any]) -> None:
        """As :meth:`send`, with the parts of the response's whole frame."""

    def leave_now(self) -> None:
        """What was sent leaves before all that this turn sends otherwise, if nothing of the
        connection has to leave before. Not while the request is begun."""

    def send_in_slices(self, steps: AnswerSteps) -> None:
        """Takes the steps, with other work in between, and answers with the response that they end
        with, if there is one. If the connection closes, the remaining steps are not taken."""

    def skip(self) -> None:
        """The client expects no answer (Produce with acks=0)."""

    def close(self, reason: str) -> None:
        """Closes the connection, where no answer could tell the client of an error. Earlier answers
        still leave."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Calls back if the connection closes before this request is answered."""

    def hold(self) -> bool:
        """No more requests of the connection are parsed before this one is answered. Returns
        whether this request's bytes stay valid until then; if not, they are gone after this
        turn."""


class Endpoint(NamedTuple):
    """Where clients of a listener are told to connect to."""

    host: str
    port: int


class CoordinatorAnswer(NamedTuple):
    """The answer to "which broker coordinates this group or transactional id"."""

    error_code: ErrorCode
    broker_id: BrokerId
    host: str
    port: int
    message: str | None = None


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request's circumstances."""

    header: RequestHeader
    client_address: str
    """The client's IP address, as text."""
    connection_id: str
    """Unique in the broker's life: ``local-remote-number``, for logs and group members."""
    listener: str
    """The name of the listener that the client came through."""
    principal: KafkaPrincipal
    """Who asks; ANONYMOUS without authentication."""
    reply: Reply
    broker: BrokerServices

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The client's name for itself; empty if it gives none."""
        return self.header.client_id or ""

    @property
    def now_ms(self) -> int:
        """Monotonic time of this turn; deadlines are reckoned from it."""
        return self.broker.loop.now_ms()


class ServedApi(NamedTuple):
    """A line of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


class ProduceAppends(Protocol):
    """The appends of a turn's Produce requests; produce_pipeline.py has it."""

    def add(self, leader: Leader, append: Any, broker: BrokerServices) -> None:
        """Puts an append (see pending_produce.py) behind earlier ones to the same partition."""


class VerifyTransactions(Protocol):
    """Whether partitions are part of a producer's open transaction; the transaction coordinator
    knows (KIP-890)."""

    def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        adds: bool,
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """``done`` is called once, perhaps at once, with an error for each partition that is not.
        With ``adds`` (transaction version 2) partitions that are missing are added first."""


class ClusterServices(NamedTuple):
    """A broker's part in its cluster."""

    store: ClusterStore
    controller: Controller
    """This broker's, which answers NOT_CONTROLLER while another broker is it."""
    orders: OrderQueue
    changes: TopicChanges
    """Elects leaders, too, which a broker that runs alone has nobody for."""


@dataclass(slots=True, eq=False)
class BrokerServices:
    """All that handlers work with. One for each broker; made by app.py."""

    config: BrokerConfig
    broker_id: BrokerId
    cluster_id: str
    clock: Clock
    chance: Chance
    loop: Loop
    purgatory: Purgatory
    helpers: Helpers
    logs: LogManager
    replicas: ReplicaManager
    metadata: MetadataStore
    produce: ProduceAppends
    producer_ids: ProducerIds
    conversions: DownConversions
    fetch_sessions: FetchSessions
    awaited_followers: AwaitedFollowers
    groups: GroupCoordinator = field(init=False)
    """Set by app.py once the logs are loaded (group_service.start_groups)."""
    transactions: TransactionCoordinator = field(init=False)
    """Set after ``groups``, by transaction_service.start_transactions."""
    verify_transactions: VerifyTransactions = field(init=False)
    """Asks ``transactions``, or the broker that coordinates the id. Set with ``transactions``."""
    on_topic_deleted: list[Callable[[str], None]] = field(default_factory=list)
    """Called with a topic's name when its logs have been set aside."""
    on_image: list[Callable[[], None]] = field(default_factory=list)
    """Called when the metadata have another image."""
    on_close: list[Callable[[], None]] = field(default_factory=list)
    """Called when the broker ends and takes no more requests."""
    advertised: dict[str, Endpoint] = field(default_factory=dict)
    """By listener name: the address that FindCoordinator tells clients."""
    find_coordinator: dict[int, Callable[[str, RequestContext], CoordinatorAnswer]] = field(
        default_factory=dict
    )
    """By FindCoordinator's key type: 0 for groups, 1 for transactional ids."""
    served: tuple[ServedApi, ...] = ()
    """The rows of ApiVersions; set by the dispatcher."""
    bugs: BugReports = field(default_factory=BugReports)
    folder_warnings: RateLimit = field(default_factory=RateLimit)
    """For warnings of folders in the way of new topics: clients try to create those again and
    again."""
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often an error code was answered: (API key, code). An answer may have many."""
    counters: dict[str, int] = field(default_factory=dict)
    """Plain counts by name, for metrics and tests."""
    leader_holders: LeaderHolders = field(default_factory=LeaderHolders)
    """All that keep leaderships from one request to the next; app.py tells them when one ends."""
    broker_epoch: Callable[[], int] = lambda: -1
    """This broker's epoch in its cluster: -1 while it is not registered, and without a cluster."""
    peers: Peers | None = None
    """Connections to other brokers; None without a cluster."""
    to_controller: ToController | None = None
    """Asks the cluster's controller; None without a cluster."""
    cluster: ClusterServices | None = None
    """This broker's part in its cluster; None without a cluster."""
    fetchers: Fetchers | None = None
    """Copies what leaders have; None without a cluster."""
    in_sync_counts: InSyncCounts = field(default_factory=InSyncCounts)
    creating: set[str] = field(default_factory=set)
    """Topics that the controller, another broker, was asked to make and has not answered for."""
    slices: Slices = field(init=False)
    """Runs the steps of long answers, with other work in between."""

    def __post_init__(self) -> None:
        self.slices = Slices(self.loop)

    def count_error(self, api_key: int, code: int) -> None:
        """An answer has an error code; NONE counts as no error."""
        if code:
            self.errors[api_key, int(code)] += 1

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counters[name] = self.counters.get(name, 0) + by


AnswerSteps = Generator[int, None, Response | None]
"""A response that is made in steps, each yielding its cost in elements (runtime/slices.py). For
answers that grow with the request or with the broker's topics and groups."""

Handle = Callable[[Any, RequestContext], Response | AnswerSteps | None]
"""(request, context) -> the response, at once or in steps; None if the response comes later through
``context.reply``."""

ErrorResponse = Callable[[Any, ErrorCode], Response | None]
"""(request, code) -> a response with ``code`` in all its error fields. None closes the connection:
the client expects no answer (Produce with acks=0)."""
