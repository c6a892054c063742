"""Evented connections in a background thread, used from a test's thread."""

from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from pyspark_klog.client.cluster.evented_client import EventedClient
from pyspark_klog.client.security.preparation import Preparation
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address, read_addresses
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings
from pyspark_klog.client.transport.pending_request import Build
from pyspark_klog.client.transport.tcp_connector import TcpConnector
from pyspark_klog.client.transport.thread_loop import ThreadLoop
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from pyspark_klog.protocol.message import Response
from tests.support.eventually import eventually

R = TypeVar("R", bound=Response)

TIMEOUT_MS = 30_000


class ClusterClient:
    """An `EventedClient` in its thread; the newest metadata and the errors of requests for it."""

    def __init__(self, given: dict[str, Any], *, may_create_topics: bool = False) -> None:
        self.settings = ClientSettings(given)
        self.loop = ThreadLoop("test-cluster-client")
        self.failures: list[KlogError] = []
        self.client = EventedClient(
            self.settings,
            loop=self.loop,
            connector=TcpConnector(self.settings),
            prepare=Preparation(self.settings.security, self.loop.post).prepare,
            random=lambda: 0.5,
            on_metadata=lambda: None,
            on_failure=self.failures.append,
            may_create_topics=may_create_topics,
        )

    def __enter__(self) -> "ClusterClient":
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.post(self.client.close)
        assert self.loop.stop(30)

    def follow(self, *topics: str) -> None:
        """Follow topics, and wait until their metadata are known."""
        for topic in topics:
            self.loop.post(partial(self.client.follow, topic))
        eventually(
            lambda: self.client.view.topics.keys() >= set(topics), deadline_s=60, what="metadata"
        )

    def call_broker(self, broker_id: int, response_class: type[R], build: Build) -> R:
        """Send a request to a broker and return its response."""
        outcome: Future[R] = Future()
        self.loop.post(
            lambda: self.client.send_to_broker(
                broker_id, response_class, build, partial(_finish, outcome), TIMEOUT_MS
            )
        )
        return outcome.result(60)


def _finish(outcome: "Future[Any]", response: Any, error: KlogError | None) -> None:
    if response is not None:
        outcome.set_result(response)
    else:
        outcome.set_exception(error)


class ThreadClient:
    """A loop in its thread, with one connection to the bootstrap server of the settings."""

    def __init__(self, given: dict[str, Any], setup_timeout_ms: int = 10_000) -> None:
        settings = ClientSettings(given)
        self.loop = ThreadLoop("test-client")
        self.address: Address = read_addresses(settings.text("bootstrap.servers"))[0]
        self.connection = EventedConnection(
            self.address,
            EventedSettings(
                client_id="threaded",
                setup_timeout_ms=setup_timeout_ms,
                reconnect=Backoff(10, 50),
            ),
            loop=self.loop,
            connector=TcpConnector(settings),
            random=lambda: 0.5,
            prepare=Preparation(settings.security, self.loop.post).prepare,
        )

    def __enter__(self) -> "ThreadClient":
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.post(self.connection.close)
        assert self.loop.stop(30)

    def send(
        self,
        response_class: type[R],
        build: Build,
        timeout_ms: int = TIMEOUT_MS,
        high: int | None = None,
    ) -> "Future[R]":
        """Send a request; the future gets its response or its error."""
        outcome: Future[R] = Future()
        on_done = partial(_finish, outcome)
        self.loop.post(
            lambda: self.connection.send(response_class, build, on_done, timeout_ms, high=high)
        )
        return outcome

    def call(self, response_class: type[R], build: Build, high: int | None = None) -> R:
        """Send a request and return its response."""
        return self.send(response_class, build, high=high).result(60)

    def brokers(self) -> int:
        """Return the number of brokers in a response to Metadata."""
        request = MetadataRequest(topics=[])
        return len(self.call(MetadataResponse, lambda _: request).brokers)
