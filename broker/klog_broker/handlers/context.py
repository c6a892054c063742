"""What a handler is given besides the request: who asks, when, how to answer, and the broker.

A handler returns its response, or returns None and answers later through ``context.reply``: exactly
once, by ``send``, ``skip`` or ``close``. What it waits for meanwhile it puts into the purgatory.
An answer that can become long is a generator of steps (``AnswerSteps``), which the dispatcher takes
in slices.
A request's records are views of the receive buffer and are gone after the turn's append phase.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from klog_broker.config import BrokerConfig
from klog_broker.coordinator.group.coordinator import GroupCoordinator
from klog_broker.handlers.bugs import BugReports
from klog_broker.handlers.fetch_convert import DownConversions
from klog_broker.handlers.fetch_sessions import FetchSessions
from klog_broker.handlers.leader_holders import LeaderHolders
from klog_broker.handlers.producer_ids import ProducerIds
from klog_broker.log.log_manager import LogManager
from klog_broker.metadata.interface import MetadataStore
from klog_broker.replication.partition import Leader
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.chance import Chance
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.purgatory import Purgatory
from klog_broker.runtime.rate_limit import RateLimit
from klog_broker.runtime.slices import Slices
from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.headers import RequestHeader
from pyspark_klog.protocol.message import Response


class Reply(Protocol):
    """The place of one answer in its connection's order. Used exactly once."""

    @property
    def is_open(self) -> bool:
        """False once the connection is gone: nobody waits for this answer any more."""

    def send(self, response: Response) -> None:
        """Answers. The response leaves when all earlier ones of the connection have left."""

    def send_parts(self, parts: list[Any]) -> None:
        """As :meth:`send`, with the whole frame of the response."""

    def send_in_slices(self, steps: AnswerSteps) -> None:
        """Answers with what the steps lead to, if that is not None, other work in between. If the
        connection goes, the rest of the steps is not taken."""

    def skip(self) -> None:
        """The client expects no answer (Produce with acks=0)."""

    def close(self, reason: str) -> None:
        """Closes the connection: there is no other way to tell. Earlier answers still leave."""

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Calls back if the connection goes before this request is answered."""

    def hold(self) -> bool:
        """Nothing more of the connection is parsed before this is answered. Returns whether the
        request's bytes stay until then; otherwise they are gone after this turn, as ever."""


class Endpoint(NamedTuple):
    """Where clients of a listener are told to connect to."""

    host: str
    port: int


class CoordinatorAnswer(NamedTuple):
    """The answer to "who coordinates this group or transaction"."""

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
        """What the client calls itself; empty if it does not."""
        return self.header.client_id or ""

    @property
    def now_ms(self) -> int:
        """Monotonic time of this turn: what deadlines are reckoned from."""
        return self.broker.loop.now_ms()


class ServedApi(NamedTuple):
    """A line of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


class ProduceAppends(Protocol):
    """The appends of a turn's Produce requests; produce_pipeline.py has it."""

    def add(self, leader: Leader, append: Any, broker: BrokerServices) -> None:
        """Puts an append (of pending_produce.py) behind the others to its partition."""


@dataclass(slots=True, eq=False)
class BrokerServices:
    """What the handlers work on. One for each broker; made by app.py."""

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
    groups: GroupCoordinator = field(init=False)
    """Set by app.py once the logs are loaded (group_service.start_groups)."""
    on_topic_deleted: list[Callable[[str], None]] = field(default_factory=list)
    """Called with a topic's name when its logs have been set aside."""
    advertised: dict[str, Endpoint] = field(default_factory=dict)
    """By listener name: what Metadata, DescribeCluster and FindCoordinator tell clients."""
    find_coordinator: dict[int, Callable[[str, RequestContext], CoordinatorAnswer]] = field(
        default_factory=dict
    )
    """By FindCoordinator's key type: 0 groups (put there by the group coordinator)."""
    served: tuple[ServedApi, ...] = ()
    """What ApiVersions names: filled by the dispatcher's registry."""
    bugs: BugReports = field(default_factory=BugReports)
    folder_warnings: RateLimit = field(default_factory=RateLimit)
    """For warnings of folders in the way of new topics: clients ask for those again and again."""
    counters: dict[str, int] = field(default_factory=dict)
    """Plain counts by name, for metrics and tests."""
    leader_holders: LeaderHolders = field(default_factory=LeaderHolders)
    """Told by app.py when a leadership ends."""
    slices: Slices = field(init=False)
    """Where long answers are worked on, other work in between."""

    def __post_init__(self) -> None:
        self.slices = Slices(self.loop)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counters[name] = self.counters.get(name, 0) + by


AnswerSteps = Generator[int, None, Response | None]
"""A response in steps, each with its cost in elements (runtime/slices.py): of answers that grow
with the request or with what the broker holds."""

Handle = Callable[[Any, RequestContext], Response | AnswerSteps | None]
"""(request, context) -> the response, at once or in steps, or None if it comes later through
``context.reply``."""

ErrorResponse = Callable[[Any, ErrorCode], Response | None]
"""(request, code) -> a response that says ``code`` wherever this API says how it went. None closes
the connection: the client expects no answer (Produce with acks=0)."""
