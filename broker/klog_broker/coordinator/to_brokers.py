"""What the coordinators of a broker ask other brokers: a connection to each, a queue, and one
request at a time, which takes along all that waits.

Nothing is tried again here. Whoever asked looks the partition's leader up anew and asks that one.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from klog_broker.metadata.image import MetadataImage
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.message import Request, Response

Q = TypeVar("Q")
R = TypeVar("R", bound=Response)

REQUEST_TIMEOUT_MS = 35_000
"""How long an answer is waited for. A broker lets markers wait to be replicated for 30 seconds,
Kafka's request.timeout.ms, and then tells which of a request were not."""
MOST_PARTITIONS = 5_000
"""Partitions that a request goes beyond only by its first question. More than a broker takes of
another one's request (MAX_REQUEST_ELEMENTS of its dispatcher) cannot come together."""

_UNKNOWN = ErrorCode.NETWORK_EXCEPTION

_log = logging.getLogger("klog.coordinator")

PartitionCodes = Mapping[TopicPartition, ErrorCode]
Codes = PartitionCodes | ErrorCode
"""What a broker has answered of each partition, or of all of them. NETWORK_EXCEPTION: nobody knows
what became of the question."""


class Connect(Protocol):
    """Makes a connection that connects when a request needs it (`Peers.connect`)."""

    def __call__(self, host: str, port: int, /) -> EventedConnection: ...


class Question(NamedTuple, Generic[Q]):
    """What one transaction asks a broker. Answers name the ``key`` alone: no two of a key go in one
    request. ``told`` is called once, later."""

    key: Hashable
    content: Q
    partition_count: int
    told: Callable[[Codes], None]


class Api(Protocol, Generic[Q, R]):
    """How questions become a request, and what its answer says."""

    @property
    def reply_class(self) -> type[R]: ...

    @property
    def versions(self) -> tuple[int, int | None]:
        """The lowest and the highest that can be spoken."""

    def build(self, contents: list[Q]) -> Request: ...

    def read(self, reply: R) -> Mapping[Hashable, PartitionCodes] | ErrorCode:
        """By key; or the error of the whole request."""


class _Link(Generic[Q]):
    """The connection to a broker, what waits for it, and what was sent."""

    __slots__ = ("address", "connection", "is_called", "sent", "waiting")

    def __init__(self, address: tuple[str, int], connection: EventedConnection) -> None:
        self.address = address
        self.connection = connection
        self.waiting: deque[Question[Q]] = deque()
        self.sent: list[Question[Q]] = []
        self.is_called = False


class ToBrokers(Generic[Q, R]):
    """Asks brokers of one cluster in one way. Loop thread only. ``listener`` is that of the brokers
    among themselves."""

    def __init__(
        self,
        loop: Loop,
        image: Callable[[], MetadataImage],
        listener: str,
        connect: Connect,
        api: Api[Q, R],
    ) -> None:
        self._loop = loop
        self._image = image
        self._listener = listener
        self._connect = connect
        self._api = api
        self._links: dict[BrokerId, _Link[Q]] = {}
        self._is_closed = False
        self._not_answered = RateLimit()

    def knows(self, broker_id: BrokerId) -> bool:
        """Whether the broker is alive, by the image."""
        return self._address(broker_id) is not None

    def ask(self, broker_id: BrokerId, question: Question[Q]) -> None:
        """Ask with the broker's next request: now, unless one is unanswered. After `close` nobody
        is asked, and ``told`` is called as if the broker were not there."""
        link = self._link(broker_id)
        if link is None:
            self._loop.call_soon(lambda: question.told(_UNKNOWN))
            return
        link.waiting.append(question)
        self._send_at_append(link)

    def look(self) -> None:
        """The image is another one. Of brokers that are gone, or came back elsewhere, no answer is
        waited for: by now others may lead what they led."""
        for broker_id, link in list(self._links.items()):
            if self._address(broker_id) != link.address:
                del self._links[broker_id]
                self._loop.call_soon(partial(self._end, link, "the broker is gone"))

    def close(self) -> None:
        """End all connections, and make no more: whoever waits is told now."""
        self._is_closed = True
        links, self._links = self._links, {}
        for link in links.values():
            self._end(link, "the broker ends")

    # --- inside ----------------------------------------------------------------------------------
    def _address(self, broker_id: BrokerId) -> tuple[str, int] | None:
        broker = self._image().brokers.get(broker_id)
        endpoint = broker and broker.endpoint(self._listener)
        return (endpoint.host, endpoint.port) if endpoint else None

    def _link(self, broker_id: BrokerId) -> _Link[Q] | None:
        link = self._links.get(broker_id)
        if link is None and not self._is_closed:
            address = self._address(broker_id)
            if address is not None:
                link = self._links[broker_id] = _Link(address, self._connect(*address))
        return link

    def _send_at_append(self, link: _Link[Q]) -> None:
        """Once all of this turn's questions are there."""
        if not link.is_called and not link.sent:
            link.is_called = True
            self._loop.call_at_append(lambda: self._send(link))

    def _send(self, link: _Link[Q]) -> None:
        link.is_called = False
        sent = link.sent = _batch(link.waiting)
        if not sent:
            return
        low, high = self._api.versions
        link.connection.send(
            self._api.reply_class,
            lambda _: self._api.build([each.content for each in sent]),
            lambda reply, error: self._answered(link, reply, error),
            REQUEST_TIMEOUT_MS,
            low=low,
            high=high,
        )

    def _answered(self, link: _Link[Q], reply: R | None, error: KlogError | None) -> None:
        sent, link.sent = link.sent, []
        found: Mapping[Hashable, PartitionCodes] | ErrorCode = _UNKNOWN
        if reply is not None:
            found = self._api.read(reply)
        else:
            # What waits would have to wait for the same connection.
            sent = [*sent, *link.waiting]
            link.waiting.clear()
            self._tell(link, error)
        for each in sent:
            each.told(found if isinstance(found, ErrorCode) else found.get(each.key, {}))
        if link.waiting:
            self._send_at_append(link)

    def _end(self, link: _Link[Q], why: str) -> None:
        link.connection.close(why)
        waiting = list(link.waiting)
        link.waiting.clear()
        for each in waiting:
            each.told(_UNKNOWN)

    def _tell(self, link: _Link[Q], error: KlogError | None) -> None:
        if not link.connection.is_closed and self._not_answered.allows(self._loop.now_ms()):
            more = self._not_answered.take_note()
            name = self._api.reply_class.__name__
            _log.warning("no-answer api=%s reason=%s%s", name, error, more)


def code_of(codes: Codes, partition: TopicPartition) -> ErrorCode:
    """What a broker has answered of a partition: UNKNOWN_SERVER_ERROR if it left that one out."""
    if isinstance(codes, ErrorCode):
        return codes
    return codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)


def known_code(number: int) -> ErrorCode:
    """The code of an answer. One that klog does not know is an error that says nothing."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _batch(waiting: deque[Question[Q]]) -> list[Question[Q]]:
    """Take the questions of the next request out of the queue; their order stays by key."""
    taken: list[Question[Q]] = []
    left: list[Question[Q]] = []
    keys: set[Hashable] = set()
    count = 0
    while waiting:
        each = waiting.popleft()
        if taken and count + each.partition_count > MOST_PARTITIONS:
            left.append(each)
            break
        if each.key in keys:
            left.append(each)
            continue
        keys.add(each.key)
        taken.append(each)
        count += each.partition_count
    waiting.extendleft(reversed(left))
    return taken
