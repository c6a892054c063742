"""Sends the requests for transactions that a broker sends to other brokers.

A part is what one transaction has to send to one broker. Each broker has one connection, a queue of
parts, and at most one request in flight, which combines queued parts of different transactions (up
to MOST_PARTITIONS partitions). Failed parts are not retried here, because the partitions may have
other leaders by then: the caller, or its client, tries again.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from klog_broker.metadata.image import MetadataImage
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.peers import Connect
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.message import Request, Response

Q = TypeVar("Q")
R = TypeVar("R", bound=Response)

REQUEST_TIMEOUT_MS = 35_000
"""How long to wait for a response. A broker waits up to 30 seconds, Kafka's request.timeout.ms, for
the replication of transaction markers, and then answers REQUEST_TIMED_OUT for the partitions whose
markers are not replicated yet."""
MOST_PARTITIONS = 5_000
"""Largest number of partitions in a request that combines several transactions' parts. A part with
more partitions is sent alone, as one request. The limit keeps combined requests below
MAX_REQUEST_ELEMENTS, the number of array elements that the receiving broker accepts."""

_UNKNOWN = ErrorCode.NETWORK_EXCEPTION

_log = logging.getLogger("klog.coordinator")

PartitionCodes = Mapping[TopicPartition, ErrorCode]
Codes = PartitionCodes | ErrorCode
"""A broker's result for one transaction's part of a request: one error code for each partition, or
one for all of them. NETWORK_EXCEPTION means that no usable response came: perhaps the broker has
carried out the request, or it never got the request."""


class RequestPart(NamedTuple, Generic[Q]):
    """One transaction's part of a request to a broker.

    Responses identify a part only by ``key``, so one request never has two parts of one key.
    ``on_result`` is called once, later, with the broker's result.
    """

    key: Hashable
    content: Q
    partition_count: int
    on_result: Callable[[Codes], None]


class BatchedApi(Protocol, Generic[Q, R]):
    """An API whose requests combine the parts of several transactions (WriteTxnMarkers,
    AddPartitionsToTxn): builds the request, and reads the parts' results from the response."""

    @property
    def response_class(self) -> type[R]: ...

    @property
    def versions(self) -> tuple[int, int | None]:
        """The lowest and the highest version of the API to use; None means the highest version
        that this broker and the receiving broker know."""

    def build(self, contents: list[Q]) -> Request: ...

    def read(self, response: R) -> Mapping[Hashable, PartitionCodes] | ErrorCode:
        """Return the error codes of each transaction's part of the request, by the part's key; or
        the error of the whole request."""


class _Link(Generic[Q]):
    """The connection to a broker, and the transactions' parts of requests to this broker: those in
    the queue, and those in the request in flight."""

    __slots__ = ("address", "connection", "is_called", "sent", "waiting")

    def __init__(self, address: tuple[str, int], connection: EventedConnection) -> None:
        self.address = address
        self.connection = connection
        self.waiting: deque[RequestPart[Q]] = deque()
        self.sent: list[RequestPart[Q]] = []
        self.is_called = False


class BrokerRequestSender(Generic[Q, R]):
    """Sends one API's requests, combined from transactions' parts, to other brokers. Loop thread
    only.

    ``listener`` is the name of the inter-broker listener.
    """

    def __init__(
        self,
        loop: Loop,
        image: Callable[[], MetadataImage],
        listener: str,
        connect: Connect,
        api: BatchedApi[Q, R],
    ) -> None:
        self._loop = loop
        self._image = image
        self._listener = listener
        self._connect = connect
        self._api = api
        self._links: dict[BrokerId, _Link[Q]] = {}
        self._is_closed = False
        self._not_answered = RateLimit()

    def has_broker(self, broker_id: BrokerId) -> bool:
        """Whether the metadata image has the broker's endpoint on the inter-broker listener."""
        return self._address(broker_id) is not None

    def enqueue_part(self, broker_id: BrokerId, part: RequestPart[Q]) -> None:
        """Queue a transaction's part for a request to the broker. A request is sent once no other
        request to this broker is in flight.

        After `close`, and for a broker that is not in the metadata image, ``on_result`` is called
        soon with NETWORK_EXCEPTION.
        """
        link = self._link(broker_id)
        if link is None:
            self._loop.call_soon(lambda: part.on_result(_UNKNOWN))
            return
        link.waiting.append(part)
        self._send_at_append(link)

    def close_stale_connections(self) -> None:
        """Close the connections of brokers that left the new metadata image or changed address.

        The transactions' parts that are queued for or sent over these connections fail at once,
        because other brokers may lead the partitions by now.
        """
        for broker_id, link in list(self._links.items()):
            if self._address(broker_id) != link.address:
                del self._links[broker_id]
                self._loop.call_soon(
                    partial(self._close_link, link, "the broker left or changed its address")
                )

    def close(self) -> None:
        """Close all connections and open no more; all transactions' parts of requests that have no
        result yet fail."""
        self._is_closed = True
        links, self._links = self._links, {}
        for link in links.values():
            self._close_link(link, "this broker shuts down")

    # --- connections to brokers, requests and responses ------------------------------------------
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
        """Send queued parts, combined into one request, in the append phase of this event-loop
        turn. Before this phase, the turn's received requests have been handled and have queued
        their parts."""
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
            self._api.response_class,
            lambda _: self._api.build([each.content for each in sent]),
            lambda response, error: self._on_response(link, response, error),
            REQUEST_TIMEOUT_MS,
            low=low,
            high=high,
        )

    def _on_response(self, link: _Link[Q], response: R | None, error: KlogError | None) -> None:
        sent, link.sent = link.sent, []
        found: Mapping[Hashable, PartitionCodes] | ErrorCode = _UNKNOWN
        if response is not None:
            found = self._api.read(response)
        else:
            # Fail the transactions' parts in the queue, too, because usually the connection to the
            # broker is broken.
            sent = [*sent, *link.waiting]
            link.waiting.clear()
            self._log_failed_request(link, error)
        for each in sent:
            each.on_result(found if isinstance(found, ErrorCode) else found.get(each.key, {}))
        if link.waiting:
            self._send_at_append(link)

    def _close_link(self, link: _Link[Q], why: str) -> None:
        link.connection.close(why)
        waiting = list(link.waiting)
        link.waiting.clear()
        for each in waiting:
            each.on_result(_UNKNOWN)

    def _log_failed_request(self, link: _Link[Q], error: KlogError | None) -> None:
        if not link.connection.is_closed and self._not_answered.allows(self._loop.now_ms()):
            more = self._not_answered.pop_suppressed_note()
            name = self._api.response_class.__name__
            _log.warning("api=%s no response from a broker, callers retry: %s%s", name, error, more)


def code_of(codes: Codes, partition: TopicPartition) -> ErrorCode:
    """Return the partition's result; UNKNOWN_SERVER_ERROR if the response lacks the partition."""
    if isinstance(codes, ErrorCode):
        return codes
    return codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)


def known_code(number: int) -> ErrorCode:
    """Convert a response's error number; a number unknown to klog is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _batch(waiting: deque[RequestPart[Q]]) -> list[RequestPart[Q]]:
    """Take the transactions' parts that form the next request out of the queue. Take only the first
    of several parts with the same key; the others stay queued, in order."""
    taken: list[RequestPart[Q]] = []
    left: list[RequestPart[Q]] = []
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
