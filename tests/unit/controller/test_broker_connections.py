"""The connections for a controller's requests: one for each broker epoch."""

from typing import Any

import pytest

from klog_broker.config import Listener
from klog_broker.controller.zookeeper.request_links import BrokerConnections
from klog_broker.metadata.image import BrokerRegistration
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class Connection:
    """Keeps sent requests until the test responds, or the connection is closed."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.is_closed = False

    def send(self, response_class: type, build: Any, on_done: Any, timeout_ms: int) -> None:
        assert (response_class, timeout_ms) == (UpdateMetadataResponse, 30_000)
        self.waiting.append((build(8), on_done))

    def close(self, reason: str) -> None:
        self.is_closed = True
        waiting, self.waiting = self.waiting, []
        for _, on_done in waiting:
            on_done(None, KlogError(reason))


class Links:
    def __init__(self) -> None:
        self.made: list[tuple[str, int, Connection]] = []
        self.soon: list[Any] = []
        self.answers: list[Any] = []
        self.now_ms = 0
        self.links = BrokerConnections(
            "INSIDE", self.connect, self.soon.append, 30_000, lambda: self.now_ms
        )

    def connect(self, host: str, port: int, /, *, max_in_flight: int) -> Any:
        assert max_in_flight == 1
        self.made.append((host, port, Connection()))
        return self.made[-1][2]

    def send(self, broker_epoch: int, *, port: int = 9093, listener: str = "INSIDE") -> None:
        endpoint = Listener(listener, "PLAINTEXT", "one", port)
        order = UpdateMetadataRequest(broker_epoch=broker_epoch)
        registration = BrokerRegistration(BrokerId(1), (endpoint,))
        self.links.send(registration, order, self.answers.append)


def test_a_broker_epoch_has_one_connection() -> None:
    world = Links()
    world.send(50)
    world.send(50)
    [(host, port, connection)] = world.made
    assert (host, port, len(connection.waiting)) == ("one", 9093, 2)
    order, done = connection.waiting[0]
    assert order.broker_epoch == 50
    done(UpdateMetadataResponse(error_code=0), None)
    assert world.answers == [UpdateMetadataResponse(error_code=0)]


def test_a_request_to_an_older_broker_epoch_fails_at_once() -> None:
    world = Links()
    world.send(50)
    world.send(51)
    old, new = (each[2] for each in world.made)
    assert (old.is_closed, new.is_closed) == (True, False)
    assert world.answers == [None]
    assert len(new.waiting) == 1
    world.send(51, port=9094)
    assert new.is_closed
    assert world.made[-1][:2] == ("one", 9094)


def test_a_broker_without_the_listener_gets_no_requests() -> None:
    world = Links()
    world.send(50, listener="OUTSIDE")
    assert (world.made, world.answers) == ([], [])
    for call in world.soon:
        call()
    assert world.answers == [None]


def test_resigning_closes_the_connections() -> None:
    world = Links()
    world.send(50)
    world.links.close()
    assert world.made[0][2].is_closed
    assert world.answers == [None]
    world.send(50)
    assert len(world.made) == 2


def test_a_broker_without_responses_for_long_is_named_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Links()

    def fail(listener: str = "INSIDE") -> list[str]:
        caplog.clear()
        world.send(50, listener=listener)
        if listener == "INSIDE":
            _, done = world.made[-1][2].waiting.pop()
            done(None, KlogError("could not connect to one:9093"))
        world.now_ms += 1_000
        return caplog.messages

    assert [fail(), fail()] == [[], []], "it may just have come, or gone"
    assert fail() == [
        "broker_id=1 has answered no controller request for 2000 ms: it did not answer"
        " UpdateMetadataRequest: could not connect to one:9093"
    ]
    assert fail() == []
    world.now_ms += 10_000
    assert "it has no listener INSIDE (1 similar ones since" in fail("OTHER")[0]
    world.send(50)
    world.made[-1][2].waiting.pop()[1](UpdateMetadataResponse(), None)
    world.now_ms += 10_000
    assert fail() == []
    world.send(50)
    world.links.close()
    assert caplog.messages == []
