"""The evented client in the loop of a real broker: it and the broker share one thread."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from klog_broker.runtime.net.poller import SelectorPoller
from klog_broker.runtime.net.sockets import RealNetwork
from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings
from pyspark_klog.client.transport.pending_request import Build
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.fetch import FetchResponse
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from pyspark_klog.protocol.apis.produce import ProduceResponse
from pyspark_klog.protocol.message import Response
from tests.support.broker_thread import BrokerThread
from tests.support.client.evented_world import metadata_request
from tests.support.raw_requests import batch, create_topic, fetch_request, produce_request

R = TypeVar("R", bound=Response)

TIMEOUT_MS = 30_000


@pytest.fixture(scope="module", params=["epoll", "selector"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    borders = {"poller": SelectorPoller()} if request.param == "selector" else {}
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", **borders) as thread:
        yield thread


class InLoop:
    """Connections in the broker's loop, used from the test's thread."""

    def __init__(self, broker: BrokerThread) -> None:
        self.broker = broker
        self.connections: list[EventedConnection] = []

    def connection(self, port: int | None = None) -> EventedConnection:
        """Connect to the broker itself, or to another port of this machine."""
        host, own_port = self.broker.address
        connection = EventedConnection(
            Address(host, port or own_port),
            EventedSettings(client_id="evented", from_address="127.0.0.1"),
            loop=self.broker.broker.loop,
            connector=RealNetwork(),
            random=lambda: 0.5,
        )
        self.connections.append(connection)
        return connection

    def send(
        self, connection: EventedConnection, response_class: type[R], build: Build, **bounds: Any
    ) -> "Future[R]":
        outcome: Future[R] = Future()

        def on_done(reply: R | None, error: KlogError | None) -> None:
            if reply is not None:
                outcome.set_result(reply)
            else:
                outcome.set_exception(error)

        def send() -> None:
            connection.send(response_class, build, on_done, TIMEOUT_MS, **bounds)

        self.broker.in_loop(send)
        return outcome

    def call_broker(
        self, connection: EventedConnection, response_class: type[R], build: Build, **bounds: Any
    ) -> R:
        return self.send(connection, response_class, build, **bounds).result(30)


@pytest.fixture
def in_loop(broker: BrokerThread) -> Iterator[InLoop]:
    side = InLoop(broker)
    yield side
    for connection in side.connections:
        broker.in_loop(connection.close)


def test_records_go_in_and_come_out(broker: BrokerThread, in_loop: InLoop) -> None:
    with broker.client() as client:
        create_topic(client, "evented", max_message_bytes=10_000_000)
    connection = in_loop.connection()
    metadata = in_loop.call_broker(
        connection, MetadataResponse, lambda _: metadata_request("evented")
    )
    topic = metadata.topics[0]
    assert (topic.name, len(topic.partitions)) == ("evented", 1)
    records = batch(*[bytes([n]) * 100_000 for n in range(40)])

    produced = in_loop.call_broker(
        connection,
        ProduceResponse,
        lambda version: produce_request(topic.topic_id if version >= 13 else "evented", records),
    )
    assert produced.responses[0].partition_responses[0].error_code == 0
    fetched = in_loop.call_broker(
        connection,
        FetchResponse,
        lambda _: fetch_request("evented", 0, max_bytes=1 << 30, partition_max_bytes=1 << 30),
        high=12,
    )
    [partition] = fetched.responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (0, 40)
    # The broker has stamped the base offset, 0, and a leader epoch: all behind that is as sent.
    assert len(partition.records) == len(records)
    assert bytes(partition.records)[21:] == records[21:]


def test_many_requests_at_once_are_answered_in_order(broker: BrokerThread, in_loop: InLoop) -> None:
    connection = in_loop.connection()
    order: list[int] = []
    done: Future[None] = Future()

    def note(number: int, reply: MetadataResponse | None) -> None:
        assert reply is not None
        order.append(number)
        if len(order) == 200:
            done.set_result(None)

    def send_all() -> None:
        for number in range(200):
            connection.send(
                MetadataResponse,
                lambda _: metadata_request("absent"),
                lambda reply, _, number=number: note(number, reply),  # type: ignore[misc]
                TIMEOUT_MS,
            )

    broker.in_loop(send_all)
    done.result(30)
    assert order == list(range(200))


def test_a_refused_port_is_an_answer(in_loop: InLoop) -> None:
    listener = RealNetwork().listen("127.0.0.1", 0, 1)
    _, port = listener.address()
    listener.close()
    outcome = in_loop.send(
        in_loop.connection(port), MetadataResponse, lambda _: metadata_request("a")
    )
    with pytest.raises(ConnectionFailed, match=f"connect to 127.0.0.1:{port}: Connection refused"):
        outcome.result(30)


def test_a_name_is_refused_without_looking_it_up(broker: BrokerThread, in_loop: InLoop) -> None:
    connection = in_loop.connection()
    connection.address = Address("localhost", broker.address[1])
    outcome = in_loop.send(connection, MetadataResponse, lambda _: metadata_request("a"))
    with pytest.raises(ConnectionFailed, match="'localhost' does not appear to be"):
        outcome.result(30)
