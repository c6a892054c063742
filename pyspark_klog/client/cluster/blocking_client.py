"""The blocking client: calls that wait for their responses, retries, and the cluster's metadata.

One `BlockingClient` belongs to one thread. `Links` holds its connections. The only requests whose
contents this module knows are those for metadata.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from pyspark_klog.client import chance, clock
from pyspark_klog.client.cluster.metadata import (
    ClusterView,
    PartitionInfo,
    TopicInfo,
    metadata_request,
)
from pyspark_klog.client.cluster.read_replicas import ReadReplicas
from pyspark_klog.client.cluster.retry_warnings import Retries
from pyspark_klog.client.errors import (
    ConnectionFailed,
    LeaderUnknown,
    NoBrokerAvailable,
    SettingError,
    TimedOut,
    is_retriable,
)
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address, read_addresses
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.client.transport.links import Links, LinkSecurity, this_host
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.security.setting_types import Value

R = TypeVar("R", bound=Response)
T = TypeVar("T")

Build = Callable[[int], Request]
"""A function that makes a request in the API version that the client has chosen."""


class BlockingClient:
    """Connections to one cluster. ``now_ms``, ``sleep`` and ``random`` can be replaced in tests."""

    def __init__(
        self,
        settings: ClientSettings | Mapping[str, Value],
        *,
        now_ms: Callable[[], int] = clock.monotonic_ms,
        sleep: Callable[[float], None] = clock.sleep,
        random: Callable[[], float] = chance.fraction,
    ) -> None:
        self.settings = (
            settings if isinstance(settings, ClientSettings) else ClientSettings(settings)
        )
        if not isinstance(settings, ClientSettings):
            self.settings.warn_of_ignored()
        if self.settings["bootstrap.servers"] is None:
            raise SettingError("bootstrap.servers is missing; expected host:port of a broker")
        self.bootstrap = read_addresses(self.settings.text("bootstrap.servers"))
        self.now_ms = now_ms
        self.links = Links(
            self.bootstrap,
            self.settings,
            security=_security_of(self.settings),
            now_ms=now_ms,
            sleep=sleep,
            random=random,
        )
        self.read_replicas = ReadReplicas()
        self.retries = Retries(now_ms, self.settings.prefix)
        self.view = ClusterView()
        self._refreshed_ms: dict[str, int] = {}
        self._forgotten: dict[str, TopicInfo | None] = {}
        """By topic the metadata that `forget_topic` discarded as old, to be compared with the next
        metadata: if a broker sends the same again, `mark_doubtful` is called for this broker, so
        that other brokers are asked first."""
        self._last_address: Address | None = None
        """The address of the broker to which `link_to_any` returned a connection last."""
        self._doubted: Address | None = None
        self._sleep = sleep
        self._random = random
        self._retry = Backoff(
            self.settings.number("retry.backoff.ms"), self.settings.number("retry.backoff.max.ms")
        )

    def close(self) -> None:
        """Close every connection. The client can't be used afterwards."""
        self.links.close()

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- deadlines and retries -------------------------------------------------------------------
    def deadline(self, timeout_ms: int | None = None) -> int:
        """The deadline, in ms of the client's clock, of an operation that starts now: after
        ``timeout_ms``, or after default.api.timeout.ms."""
        if timeout_ms is None:
            timeout_ms = self.settings.number("default.api.timeout.ms")
        return self.now_ms() + timeout_ms

    def run_with_retries(
        self,
        attempt: Callable[[], T],
        deadline_ms: int,
        what: str,
        may_pass: Callable[[BaseException], bool] = is_retriable,
        bound: str | None = None,
    ) -> T:
        """Call ``attempt`` until it succeeds, with growing waits after errors that ``may_pass``
        accepts. ``bound`` is the setting that the deadline comes from: the log's warnings name it.

        :raises TimedOut: with the last error, at the deadline, or before if the next wait would
            reach the deadline
        :raises KlogError: at once, if ``may_pass`` does not accept it
        """
        failures = 0
        last: KlogError | None = None
        trouble = self.retries.failures_of(what, bound)
        while True:
            try:
                with self.retries.attribute_to(trouble, lambda: deadline_ms):
                    found = attempt()
                self.retries.on_success(trouble)
                return found
            except KlogError as error:
                if isinstance(error, TimedOut) and last is not None:
                    # Report the error of the attempt before the one that timed out, because that
                    # error shows more of the cause than the timeout.
                    raise TimedOut(f"{what} did not succeed in time: {last}") from last
                if not may_pass(error):
                    raise
                last = error
                failures += 1
                if failures > 1:
                    self.mark_doubtful()
                wait_ms = self.wait_ms(failures)
                if self.now_ms() + wait_ms >= deadline_ms:
                    raise TimedOut(f"{what} did not succeed in time: {error}") from error
                self.retries.on_failure(trouble, error, deadline_ms)
            self._sleep(wait_ms / 1000)

    def wait_ms(self, failures: int) -> int:
        """How long to wait, in ms, after ``failures`` failed attempts in a row
        (retry.backoff.ms)."""
        return self._retry.wait_ms(failures, self._random)

    def sleep_ms(self, wait_ms: int) -> None:
        """Block the thread for ``wait_ms``."""
        self._sleep(wait_ms / 1000)

    # --- connections -----------------------------------------------------------------------------
    def link_to_broker(self, broker_id: int, deadline_ms: int) -> Link:
        """A ready connection to a broker by its id.

        :raises LeaderUnknown: if the metadata has no such broker
        """
        address = self.view.brokers.get(broker_id)
        if address is None:
            raise LeaderUnknown(f"broker {broker_id} is not in the cluster's metadata now")
        try:
            return self.links.link_to(address, deadline_ms)
        except ConnectionFailed as error:
            if type(error) is not ConnectionFailed or address in self.bootstrap:
                raise
            # The usual cause of this failure: the broker advertises an address that works only in
            # the broker's own network.
            raise ConnectionFailed(
                f"{error} (the address that the cluster gives for broker {broker_id}, its "
                f"advertised.listeners, must be reachable from {this_host()})"
            ) from error

    def link_to_any(self, deadline_ms: int) -> Link:
        """A ready connection to any broker: an open connection, else a new one to a broker of the
        metadata, else to a bootstrap server. A broker whose metadata seems old (`mark_doubtful`)
        comes after all others, except those whose last connection attempt has failed.

        :raises NoBrokerAvailable: naming each address, and why connecting to it failed
        """
        link = self.links.link_to_any(self.view.brokers.values(), deadline_ms, self._doubted)
        self._last_address = link.address
        return link

    def mark_doubtful(self) -> None:
        """Mark the broker that `link_to_any` returned last as doubtful: its metadata seems to be
        old, perhaps because the broker cannot reach the controller. `link_to_any` prefers other
        brokers, until another broker is marked."""
        self._doubted = self._last_address

    # --- requests and their responses -------------------------------------------------------------
    def send(
        self,
        link: Link,
        message: Request,
        response_class: type[R],
        version: int,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> Call[R]:
        """Put a request on a connection and begin to send it."""
        call = link.connection.send(
            message,
            response_class,
            version,
            self.now_ms(),
            timeout_ms=timeout_ms,
            expects_response=expects_response,
        )
        link.last_used_ms = self.now_ms()
        link.send_pending()
        return call

    def wait(self, call: Call[R], deadline_ms: int | None = None) -> R:
        """Wait for the response to one request, the ``call``, and return the response; raises the
        error with which the request failed, or TimedOut at the deadline."""
        while not call.is_done:
            now_ms = self.now_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                raise TimedOut(f"no reply to {call.api_key.name} in time")
            self.links.poll(call.deadline_ms if deadline_ms is None else deadline_ms)
        return call.result()

    def call(
        self,
        link: Link,
        response_class: type[R],
        build: Build,
        *,
        low: int = 0,
        high: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request in the newest version from ``low`` to ``high`` that klog and the broker
        support, and wait for its response."""
        version = link.connection.version(response_class.api_key, low, high)
        return self.wait(
            self.send(link, build(version), response_class, version, timeout_ms=timeout_ms)
        )

    def collect_from_brokers(
        self, ask: Callable[[Link, int], list[T]], what: str, deadline_ms: int | None = None
    ) -> list[T]:
        """Call ``ask`` for all brokers of the cluster, one after the other by id; return the
        results of all calls in one list.

        ``ask`` gets the connection and the broker's id. If a broker does not answer, or answers
        with a retriable error, all brokers are asked again, because the groups or transactions of
        that broker may have moved to another one by then. The call fails at the deadline
        (default.api.timeout.ms unless given), and at once after any other error.
        """
        deadline = self.deadline() if deadline_ms is None else deadline_ms

        def of_all() -> list[T]:
            found: list[T] = []
            for broker_id in sorted(self.refresh([], deadline).brokers):
                found += ask(self.link_to_broker(broker_id, deadline), broker_id)
            return found

        return self.run_with_retries(of_all, deadline, what)

    # --- the cluster's metadata ------------------------------------------------------------------
    def refresh(
        self,
        topics: Iterable[str] | None,
        deadline_ms: int | None = None,
        *,
        may_create: bool = False,
    ) -> ClusterView:
        """Ask for the metadata of some topics (None: all), with retries, and update the view (this
        client's copy of the metadata).

        The error of a single topic is kept in the view, because only the caller can judge it.
        """
        deadline = self.deadline() if deadline_ms is None else deadline_ms
        names = None if topics is None else sorted(set(topics))

        def attempt() -> ClusterView:
            link = self.link_to_any(deadline)
            response = self.call(
                link, MetadataResponse, lambda v: metadata_request(names, v, may_create)
            )
            found = ClusterView.of(response)
            if not found.brokers:
                # A broker that has just started may not have received the list of brokers yet.
                # NoBrokerAvailable is retriable: the request is repeated.
                raise NoBrokerAvailable("the cluster's metadata names no broker")
            return found

        bound = "default.api.timeout.ms" if deadline_ms is None else None
        what = "asking for the cluster's metadata"
        newer = self.run_with_retries(attempt, deadline, what, bound=bound)
        now_ms = self.now_ms()
        if names is None:
            there = {n: topic for n, topic in self.view.topics.items() if n in newer.topics}
            self.view = replace(self.view, topics=there).merged(newer)
            self._refreshed_ms = dict.fromkeys(newer.topics, now_ms)
        else:
            # Before Metadata version 4 the response may have all topics (`metadata_request`): take
            # over only those that the caller named.
            absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            asked = {n: newer.topics.get(n, TopicInfo(n, error=absent)) for n in names}
            self.view = self.view.merged(replace(newer, topics=asked))
            self._refreshed_ms.update(dict.fromkeys(names, now_ms))
        for name in [each for each in self._forgotten if each in self._refreshed_ms]:
            if self._forgotten.pop(name) == self.view.topics[name]:
                self.mark_doubtful()
        return self.view

    def is_fresh(self, topic: str) -> bool:
        """Whether the topic's metadata is younger than metadata.max.age.ms."""
        refreshed_ms = self._refreshed_ms.get(topic)
        age_ms = self.settings.number("metadata.max.age.ms")
        return refreshed_ms is not None and self.now_ms() - refreshed_ms < age_ms

    def forget_topic(self, topic: str) -> None:
        """Discard a topic's metadata as old, so that `leader_of` asks for it again. If the broker
        that is asked next returns the same metadata, `mark_doubtful` is called for that broker."""
        self._refreshed_ms.pop(topic, None)
        self._forgotten[topic] = self.view.topics.get(topic)

    def leader_of(self, partition: TopicPartition, deadline_ms: int) -> PartitionInfo:
        """The partition with its leader, from fresh metadata.

        :raises LeaderUnknown: if the partition is unknown or has no leader now (asking again may
            help)
        """
        if not self.is_fresh(partition.topic):
            self.refresh([partition.topic], deadline_ms)
        info = self.view.leader(partition)
        if info is None:
            self.forget_topic(partition.topic)
            raise LeaderUnknown(f"{partition} has no leader now")
        return info


def _security_of(settings: ClientSettings) -> LinkSecurity | None:
    if settings.security is None:
        return None
    # Imported here, because plaintext clients need neither ssl nor the SASL mechanisms.
    from pyspark_klog.client.security.driver import Security

    return Security(settings.security)
