"""The blocking driver: sockets, time and retries around connections and metadata.

One `BlockingClient` belongs to one thread. It keeps one connection to each broker, opened when it
is first needed; `poll` moves bytes on all of them. Nothing here knows what a request means.
"""

import selectors
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pyspark_klog.client import chance, clock
from pyspark_klog.client.addresses import Address, read_addresses
from pyspark_klog.client.connection import MAX_REPLY_BYTES, Call, State
from pyspark_klog.client.errors import (
    ClientError,
    ConnectionFailed,
    LeaderUnknown,
    NoBrokerAvailable,
    SettingError,
    TimedOut,
    is_retriable,
)
from pyspark_klog.client.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.read_replicas import ReadReplicas
from pyspark_klog.client.retry import Backoff
from pyspark_klog.client.setting_types import Value
from pyspark_klog.client.settings import ClientSettings
from pyspark_klog.client.sockets import IDLE_PROBE_MS, Link, connect
from pyspark_klog.client.trouble import Retries
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

if TYPE_CHECKING:
    from pyspark_klog.client.security.driver import Security

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_NOT_READY = (State.NEGOTIATING, State.AUTHENTICATING)

Build = Callable[[int], Request]
"""Makes a request for the version that was chosen."""


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
        self.read_replicas = ReadReplicas()
        self.retries = Retries(now_ms, self.settings.prefix)
        self.view = ClusterView()
        self._refreshed_ms: dict[str, int] = {}
        self._sleep = sleep
        self._random = random
        self._selector = selectors.DefaultSelector()
        self._security = self._make_security()
        self._links: dict[Address, Link] = {}
        self._failures: dict[Address, tuple[int, int]] = {}
        self._retry = self._backoff("retry.backoff.ms", "retry.backoff.max.ms")
        self._reconnect = self._backoff("reconnect.backoff.ms", "reconnect.backoff.max.ms")

    def _backoff(self, initial: str, longest: str) -> Backoff:
        return Backoff(self.settings.number(initial), self.settings.number(longest))

    def _make_security(self) -> "Security | None":
        if self.settings.security is None:
            return None
        from pyspark_klog.client.security.driver import Security

        return Security(self.settings.security)

    def close(self) -> None:
        """Close every connection. The client can't be used afterwards."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._selector.close()

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- time ------------------------------------------------------------------------------------
    def deadline(self, timeout_ms: int | None = None) -> int:
        """The end of an operation that begins now; default.api.timeout.ms unless given."""
        if timeout_ms is None:
            timeout_ms = self.settings.number("default.api.timeout.ms")
        return self.now_ms() + timeout_ms

    def retrying(
        self,
        attempt: Callable[[], T],
        deadline_ms: int,
        what: str,
        may_pass: Callable[[BaseException], bool] = is_retriable,
        bound: str | None = None,
    ) -> T:
        """``attempt()``, again after errors that may pass, with growing waits until the deadline.

        ``bound`` is the setting that the deadline comes from, for what the log says meanwhile.

        :raises TimedOut: with the last error
        """
        failures = 0
        last: KlogError | None = None
        trouble = self.retries.trouble(what, bound)
        while True:
            try:
                with self.retries.of(trouble, lambda: deadline_ms):
                    found = attempt()
                self.retries.passed(trouble)
                return found
            except KlogError as error:
                if isinstance(error, TimedOut) and last is not None:
                    # What went wrong before says more than where the time ran out.
                    raise TimedOut(f"{what} did not succeed in time: {last}") from last
                if not may_pass(error):
                    raise
                last = error
                failures += 1
                wait_ms = self.wait_ms(failures)
                if self.now_ms() + wait_ms >= deadline_ms:
                    raise TimedOut(f"{what} did not succeed in time: {error}") from error
                self.retries.failed(trouble, error, deadline_ms)
            self._sleep(wait_ms / 1000)

    def wait_ms(self, failures: int) -> int:
        """How long to wait after that many failures in a row (retry.backoff.ms)."""
        return self._retry.wait_ms(failures, self._random)

    def pause(self, wait_ms: int) -> None:
        """Do nothing for a while."""
        self._sleep(wait_ms / 1000)

    # --- connections -----------------------------------------------------------------------------
    def link_to(self, address: Address, deadline_ms: int) -> Link:
        """A ready connection to an address, opened if need be.

        :raises ClientError: if it can't be made before the deadline
        """
        link = self._links.get(address)
        if link is not None and self._is_stale(link):
            self._drop(link)
            link = None
        if link is None:
            self._wait_to_reconnect(address, deadline_ms)
            try:
                link = connect(
                    address,
                    self.settings,
                    self._selector,
                    self.now_ms,
                    MAX_REPLY_BYTES,
                    deadline_ms,
                    self._security,
                )
            except ClientError:
                self._note_failure(address)
                raise
            self._links[address] = link
        elif self._security is not None and link.connection.authentication_due(self.now_ms()):
            self._authenticate_again(link, self._security)
        while link.connection.state is not State.READY:
            if link.connection.error is not None:
                self._note_failure(address)
                self._drop(link)
                raise link.connection.error
            self.poll(deadline_ms)
            if self.now_ms() >= deadline_ms and link.connection.state in _NOT_READY:
                raise TimedOut(f"{address} did not answer in time: {link.connection.state.value}")
        self._failures.pop(address, None)
        link.last_used_ms = self.now_ms()
        return link

    def _authenticate_again(self, link: Link, security: "Security") -> None:
        """Begin to authenticate again (KIP-368). Requests that are under way are answered first."""
        mechanism = security.mechanism()
        assert mechanism is not None
        link.connection.authenticate(mechanism, self.now_ms())
        link.send_pending()

    def _is_stale(self, link: Link) -> bool:
        """Whether a connection has ended, or was unused for so long that it is given up."""
        idle_ms = self.now_ms() - link.last_used_ms
        longest_ms = self.settings.number("connections.max.idle.ms")
        if link.is_open and link.connection.in_flight == 0 and idle_ms >= IDLE_PROBE_MS:
            link.receive_available()
            if 0 <= longest_ms <= idle_ms:
                return True
        return not link.is_open

    def _wait_to_reconnect(self, address: Address, deadline_ms: int) -> None:
        failures, last_ms = self._failures.get(address, (0, 0))
        if failures == 0:
            return
        wait_ms = last_ms + self._reconnect.wait_ms(failures, self._random) - self.now_ms()
        if wait_ms > 0:
            self._sleep(min(wait_ms, max(deadline_ms - self.now_ms(), 0)) / 1000)

    def _note_failure(self, address: Address) -> None:
        self._failures[address] = (self._failures.get(address, (0, 0))[0] + 1, self.now_ms())

    def _drop(self, link: Link) -> None:
        link.close()
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def link_to_broker(self, broker_id: int, deadline_ms: int) -> Link:
        """A ready connection to a broker by its id.

        :raises LeaderUnknown: if the metadata has no such broker
        """
        address = self.view.brokers.get(broker_id)
        if address is None:
            raise LeaderUnknown(f"broker {broker_id} is not in the cluster's metadata now")
        try:
            return self.link_to(address, deadline_ms)
        except ConnectionFailed as error:
            if type(error) is not ConnectionFailed or address in self.bootstrap:
                raise
            # Most often a listener's address that only the broker's own network knows.
            raise ConnectionFailed(
                f"{error} (the address that the cluster gives for broker {broker_id}, its "
                f"advertised.listeners, must be reachable from {socket.gethostname()})"
            ) from error

    def link_to_any(self, deadline_ms: int) -> Link:
        """A ready connection to any broker: an open one, a known broker, a bootstrap server.

        :raises NoBrokerAvailable: naming each address and why it did not serve
        """
        now_ms = self.now_ms()
        for link in list(self._links.values()):
            connection = link.connection
            if connection.authentication_due(now_ms):
                continue  # `link_to` sees to it, if its turn comes
            if connection.state is State.READY and not self._is_stale(link):
                link.last_used_ms = now_ms
                return link
        known = list(self.view.brokers.values())
        known.sort(key=lambda _: self._random())
        reasons: list[str] = []
        for address in dict.fromkeys([*known, *self.bootstrap]):
            try:
                return self.link_to(address, deadline_ms)
            except KlogError as error:
                if not is_retriable(error):
                    raise
                reasons.append(str(error))
        raise NoBrokerAvailable(
            f"no broker could be reached: {'; '.join(reasons)}; check "
            f"{self.settings.prefix}bootstrap.servers, and whether these addresses can be reached "
            f"from {socket.gethostname()}"
        )

    def poll(self, deadline_ms: int) -> None:
        """Move bytes on all connections: return after something happened, or at the deadline."""
        for link in list(self._links.values()):
            if link.connection.to_send() is not None:
                link.send_pending()
            if not link.is_open:
                self._drop(link)
                # Its calls have ended: that is what the caller waits for.
                deadline_ms = self.now_ms()
        due = [deadline_ms]
        due += [d for k in self._links.values() if (d := k.connection.next_deadline_ms())]
        wait_s = max(min(due) - self.now_ms(), 0) / 1000
        for key, events in self._selector.select(wait_s):
            ready: Link = key.data
            if events & selectors.EVENT_WRITE:
                ready.send_pending()
            if events & selectors.EVENT_READ:
                ready.receive_available()
        now_ms = self.now_ms()
        for link in list(self._links.values()):
            link.connection.on_deadline(now_ms)
            if not link.is_open:
                self._drop(link)

    # --- calls -----------------------------------------------------------------------------------
    def send(
        self,
        link: Link,
        message: Request,
        reply_class: type[R],
        version: int,
        *,
        timeout_ms: int | None = None,
        expects_reply: bool = True,
    ) -> Call[R]:
        """Put a request on a connection and begin to send it."""
        call = link.connection.send(
            message,
            reply_class,
            version,
            self.now_ms(),
            timeout_ms=timeout_ms,
            expects_reply=expects_reply,
        )
        link.last_used_ms = self.now_ms()
        link.send_pending()
        return call

    def wait(self, call: Call[R], deadline_ms: int | None = None) -> R:
        """Wait for one call; raises its error, or TimedOut at the deadline."""
        while not call.is_done:
            now_ms = self.now_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                raise TimedOut(f"no reply to {call.api_key.name} in time")
            self.poll(call.deadline_ms if deadline_ms is None else deadline_ms)
        return call.result()

    def ask(
        self,
        link: Link,
        reply_class: type[R],
        build: Build,
        *,
        low: int = 0,
        high: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Send one request in the newest version that both sides speak, and wait for its reply."""
        version = link.connection.version(ApiKey(reply_class.api_key), low, high)
        return self.wait(
            self.send(link, build(version), reply_class, version, timeout_ms=timeout_ms)
        )

    # --- metadata --------------------------------------------------------------------------------
    def refresh(
        self,
        topics: Iterable[str] | None,
        deadline_ms: int | None = None,
        *,
        may_create: bool = False,
    ) -> ClusterView:
        """Ask for metadata of some topics (None: all) and take it over; retried when lost.

        What a topic's own error is stays in the view: the caller knows what it means.
        """
        deadline = self.deadline() if deadline_ms is None else deadline_ms
        names = None if topics is None else sorted(set(topics))

        def attempt() -> ClusterView:
            link = self.link_to_any(deadline)
            reply = self.ask(link, MetadataResponse, lambda v: _request(names, v, may_create))
            found = ClusterView.of(reply)
            if not found.brokers:
                # A broker that has just started may not have heard of any yet.
                raise NoBrokerAvailable("the cluster's metadata names no broker")
            return found

        bound = "default.api.timeout.ms" if deadline_ms is None else None
        what = "asking for the cluster's metadata"
        newer = self.retrying(attempt, deadline, what, bound=bound)
        now_ms = self.now_ms()
        if names is None:
            self.view = newer
            self._refreshed_ms = dict.fromkeys(newer.topics, now_ms)
        else:
            # Versions before 4 are asked for all topics: only those asked for are taken over.
            absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            asked = {n: newer.topics.get(n, TopicInfo(n, error=absent)) for n in names}
            self.view = self.view.merged(replace(newer, topics=asked))
            self._refreshed_ms.update(dict.fromkeys(names, now_ms))
        return self.view

    def is_fresh(self, topic: str) -> bool:
        """Whether the topic's metadata is younger than metadata.max.age.ms."""
        refreshed_ms = self._refreshed_ms.get(topic)
        age_ms = self.settings.number("metadata.max.age.ms")
        return refreshed_ms is not None and self.now_ms() - refreshed_ms < age_ms

    def forget(self, topic: str) -> None:
        """The topic's metadata turned out to be old: it is asked for before its next use."""
        self._refreshed_ms.pop(topic, None)

    def leader_of(self, partition: TopicPartition, deadline_ms: int) -> PartitionInfo:
        """The partition with its leader, from fresh metadata.

        :raises LeaderUnknown: if it has none now (asking again may help)
        """
        if not self.is_fresh(partition.topic):
            self.refresh([partition.topic], deadline_ms)
        info = self.view.leader(partition)
        if info is None:
            self.forget(partition.topic)
            raise LeaderUnknown(f"{partition} has no leader now")
        return info


def _request(names: list[str] | None, version: int, may_create: bool) -> MetadataRequest:
    """A request for some topics that creates none, unless it may.

    Before version 4 asking for a topic by name creates it: then all topics are asked for.
    """
    request = MetadataRequest()
    if version >= 4:
        request.allow_auto_topic_creation = may_create
    if names is None or (version < 4 and not may_create):
        request.topics = None if version >= 1 else []
    else:
        request.topics = [MetadataRequestTopic(name=name) for name in names]
    return request
