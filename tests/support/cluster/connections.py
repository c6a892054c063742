"""Connections to other brokers: the test sees each request and gives the response."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from klog_broker.config import Listener
from klog_broker.metadata.image import (
    NO_BROKER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    Topic,
)
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.headers import decode_response, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

LISTENER = "INSIDE"
OnDone = Callable[[Any, KlogError | None], None]


def registration(number: int, port: int = 9093) -> BrokerRegistration:
    outside = Listener("OUTSIDE", "PLAINTEXT", "shop.example.org", 9092)
    inside = Listener(LISTENER, "PLAINTEXT", f"10.0.0.{number}", port)
    return BrokerRegistration(BrokerId(number), (outside, inside))


def image_of(leaders: Mapping[TopicPartition, int], brokers: Mapping[int, int]) -> MetadataImage:
    """Partitions with their leaders; brokers with their ports."""
    topics: dict[str, dict[int, PartitionRegistration]] = {}
    for (name, number), leader in leaders.items():
        ids = (BrokerId(leader),)
        topics.setdefault(name, {})[number] = PartitionRegistration(ids, ids, BrokerId(leader))
    nobody = PartitionRegistration((), (), NO_BROKER)
    made = [
        Topic(
            name,
            TopicId(UUID(int=7 + place)),
            tuple(states.get(number, nobody) for number in range(max(states) + 1)),
        )
        for place, (name, states) in enumerate(topics.items())
    ]
    registered = {BrokerId(each): registration(each, port) for each, port in brokers.items()}
    return MetadataImage("cluster").with_topics(made).with_brokers(registered)


@dataclass
class Asked:
    """A request that waits for its response."""

    message: Any
    version: int
    response_class: type[Response]
    on_done: OnDone

    def answer(self, response: Response) -> None:
        """Pass on the response, encoded and decoded in the request's version."""
        frame = memoryview(encode_response(0, response, self.version))[4:]
        self.on_done(decode_response(frame, self.response_class.api_key, self.version), None)

    def fail(self, text: str = "it broke") -> None:
        self.on_done(None, ConnectionFailed(text))


@dataclass
class ScriptedConnection:
    """As much of an EventedConnection as a sender needs. Requests wait for the test's response."""

    address: tuple[str, int]
    loop: Loop
    serve: Callable[[Request, int], Any] | None = None
    asked: deque[Asked] = field(default_factory=deque)
    is_closed: bool = False

    def send(
        self,
        response_class: type[Response],
        build: Callable[[int], Request],
        on_done: OnDone,
        timeout_ms: int,
        *,
        low: int = 0,
        high: int | None = None,
    ) -> None:
        assert timeout_ms > 0
        newest = registry.find_api(ApiKey(response_class.api_key)).max_version
        version = newest if high is None else high
        assert low <= version <= newest
        asked = Asked(build(version), version, response_class, on_done)
        if self.is_closed:
            self.loop.call_soon(lambda: asked.fail("closed"))
        elif self.serve is not None:
            reply = self.serve(asked.message, version)
            self.loop.call_soon(lambda: on_done(reply, None))
        else:
            self.asked.append(asked)

    def close(self, reason: str = "") -> None:
        self.is_closed = True
        self.fail()

    def answer(self, response: Response) -> None:
        """Respond to the oldest request."""
        self.asked.popleft().answer(response)

    def fail(self) -> None:
        """Break the connection: all pending requests fail."""
        asked, self.asked = self.asked, deque()
        for each in asked:
            each.fail()


class ScriptedBrokers:
    """Makes the connections (`Peers.connect`)."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.made: list[ScriptedConnection] = []
        self.serve: dict[str, Callable[[Request, int], Any]] = {}
        """Functions that respond at once, by host."""

    def connect(self, host: str, port: int, /, **_: Any) -> EventedConnection:
        made = ScriptedConnection((host, port), self.loop, self.serve.get(host))
        self.made.append(made)
        return cast("EventedConnection", made)

    def to(self, number: int) -> ScriptedConnection:
        """The newest connection to a broker."""
        return [each for each in self.made if each.address[0] == f"10.0.0.{number}"][-1]
