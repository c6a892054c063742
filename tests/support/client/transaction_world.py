"""klog's blocking client in a world of one thread, without sockets: time passes when it waits.

`World.client` is a real `BlockingClient` whose connections end in a `TransactionModel`. A test says
with ``fate`` what becomes of each request.
"""

import copy
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Any

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import ConnectionFailed, RequestTimedOut
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.api_versions import BrokerVersions
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.protocol.apis.end_txn import EndTxnResponse
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdResponse
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.records.batch import BatchView
from tests.support.client.transaction_model import TransactionModel, response_with_error

_HOP_MS = 1
_PRODUCE_MS = 5
"""Round trip of Produce: slower than other requests, because it goes to another broker."""
_MARKERS_MS = 12


class Fate(Enum):
    """The fate of a request. An ErrorCode in place of a Fate: that error is the response, and the
    request is not carried out."""

    ANSWERED = auto()
    LOST_BEFORE = auto()
    """The connection ends before the request has arrived."""
    LOST_AFTER = auto()
    """The connection ends when the request was carried out, before the answer has arrived."""
    LATE = auto()
    """The request arrives after the client has given up waiting for the response."""


_RANGES = {
    ApiKey.METADATA: (0, 8),
    ApiKey.PRODUCE: (3, 12),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.END_TXN: (0, 5),
}


class World:
    """One client, and two brokers of this transaction.version."""

    def __init__(self, version: int, *, verifies: bool = True, **settings: str | int) -> None:
        self.model = TransactionModel(version, verifies=verifies)
        self.now_ms = 0
        self.fate: Callable[[Request], Fate | ErrorCode] = lambda _: Fate.ANSWERED
        self.on_send: Callable[[Request], None] = lambda _: None
        self.asked: Counter[ApiKey] = Counter()
        self.spoken: dict[ApiKey, int] = {}
        """The version of the last request of each kind."""
        self.identity = (-1, -1)
        """The last one that has arrived at the client."""
        self.versions = BrokerVersions(
            {key.value: given for key, given in _RANGES.items()},
            {"transaction.version": version},
            1,
        )
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        named: dict[str, Any] = {name.replace("_", "."): value for name, value in settings.items()}
        self.client = BlockingClient(
            {"bootstrap.servers": "coordinator:1", **named},
            now_ms=lambda: self.now_ms,
            sleep=lambda seconds: self.pass_time(self.now_ms + round(seconds * 1000)),
            random=lambda: 0.5,
        )
        self.client.links.close()
        self.client.retries.mute()
        self.client.links = _Links(self)  # type: ignore[assignment]

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (at_ms, next(self._numbers), action))

    def pass_time(self, until_ms: int) -> None:
        """Let time pass, with all that happens in it."""
        while self._events and self._events[0][0] <= until_ms:
            self.step(until_ms)
        self.now_ms = max(self.now_ms, until_ms)

    def step(self, until_ms: int) -> None:
        """Let the next thing happen that happens by ``until_ms``."""
        if not self._events or self._events[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)
            return
        at_ms, _, action = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, at_ms)
        action()

    def settle(self) -> None:
        """Let everything happen that is still to happen."""
        while self._events:
            self.step(self._events[0][0])

    def carry_out(self, request: Request) -> Response:
        """Carry out a request that has arrived; markers are written a little later."""
        reply = self.model.answer(request)
        self.at(self.now_ms + _MARKERS_MS, self.model.write_markers)
        return reply


class _Connection:
    def __init__(self, world: World) -> None:
        self.versions = world.versions
        self.error: KlogError | None = None
        self._world = world
        self._calls: list[Call[Any]] = []
        self._is_silent = False

    @property
    def in_flight(self) -> int:
        return sum(not call.is_done for call in self._calls)

    def version(self, key: ApiKey, low: int = 0, high: int | None = None) -> int:
        return self.versions.choose(key, low, high, "a broker")

    def send(
        self,
        message: Request,
        response_class: type[Response],
        version: int,
        now_ms: int,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> Call[Any]:
        assert timeout_ms is None
        assert expects_response
        if self.error is not None:
            raise self.error
        world = self._world
        key = ApiKey(response_class.api_key)
        deadline_ms = now_ms + world.client.settings.number("request.timeout.ms")
        call: Call[Any] = Call(key, version, 0, deadline_ms)
        self._calls.append(call)
        request = _kept(message)
        world.asked[key] += 1
        world.spoken[key] = version
        world.on_send(request)
        if isinstance(request, ProduceRequest):
            for each in (data for topic in request.topic_data for data in topic.partition_data):
                batch = BatchView(each.records)
                assert (batch.producer_id, batch.producer_epoch) == world.identity
        fate = Fate.ANSWERED if key is ApiKey.METADATA else world.fate(request)
        arrival_ms = now_ms + (_PRODUCE_MS if key is ApiKey.PRODUCE else _HOP_MS)
        if self._is_silent:
            pass  # behind a request that is late
        elif fate is Fate.LATE:
            self._is_silent = True
            world.at(deadline_ms, lambda: self.fail_calls(RequestTimedOut("no answer in time")))
            world.at(deadline_ms + _HOP_MS, lambda: _forget(world.carry_out(request)))
        else:
            world.at(arrival_ms, lambda: self._arrive(call, request, fate))
        return call

    def _arrive(self, call: Call[Any], request: Request, fate: Fate | ErrorCode) -> None:
        if self.error is not None:
            return
        world = self._world
        if fate is Fate.LOST_BEFORE:
            self.fail_calls(ConnectionFailed("lost before"))
            return
        if isinstance(fate, ErrorCode):
            reply = response_with_error(request, fate)
        else:
            reply = world.carry_out(request)
        if fate is Fate.LOST_AFTER:
            self.fail_calls(ConnectionFailed("lost after"))
        else:
            world.at(world.now_ms + _HOP_MS, lambda: self._reply(call, reply))

    def _reply(self, call: Call[Any], reply: Response) -> None:
        if call.is_done:
            return
        call.response = reply
        if not isinstance(reply, InitProducerIdResponse | EndTxnResponse):
            return
        if not reply.error_code and reply.producer_id >= 0:
            self._world.identity = (reply.producer_id, reply.producer_epoch)

    def fail_calls(self, error: KlogError) -> None:
        self.error = self.error or error
        for call in self._calls:
            if not call.is_done:
                call.error = error


class _Link:
    def __init__(self, world: World) -> None:
        self.address = Address("coordinator", 1)
        self.connection = _Connection(world)
        self.last_used_ms = 0

    def send_pending(self) -> None:
        """Do nothing: queued requests are sent at once."""


class _Links:
    def __init__(self, world: World) -> None:
        self._world = world
        self._links: dict[Address, _Link] = {}

    def __iter__(self) -> Iterator[_Link]:
        return iter(list(self._links.values()))

    def link_to(self, address: Address, deadline_ms: int) -> _Link:
        link = self._links.get(address)
        if link is None or link.connection.error is not None:
            link = self._links[address] = _Link(self._world)
        return link

    def link_to_any(
        self, known: Iterable[Address], deadline_ms: int, doubted: Address | None = None
    ) -> _Link:
        return self.link_to(Address("coordinator", 1), deadline_ms)

    def poll(self, deadline_ms: int) -> None:
        self._world.step(deadline_ms)


def _kept(message: Request) -> Request:
    """A copy of a request: the client goes on to use its buffers."""
    if not isinstance(message, ProduceRequest):
        return message
    kept = copy.copy(message)
    kept.topic_data = []
    for topic in message.topic_data:
        row = copy.copy(topic)
        row.partition_data = [copy.copy(data) for data in topic.partition_data]
        for data in row.partition_data:
            data.records = bytes(data.records or b"")
        kept.topic_data.append(row)
    return kept


def _forget(_: Response) -> None:
    """Ignore a response for which no caller waits any more."""
