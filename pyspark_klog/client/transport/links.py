"""The connections of one client, one to each address of a broker, with their sockets.

A connection is made when it is first needed, kept, and replaced after it has ended or was unused
for connections.max.idle.ms. `Links.poll` moves bytes on all connections. This module does not look
into requests.
"""

import selectors
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pyspark_klog.client.errors import (
    ClientError,
    ConnectionFailed,
    NoBrokerAvailable,
    TimedOut,
    is_retriable,
)
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.client.transport.connection import (
    MAX_RESPONSE_BYTES,
    ClientConnectionState,
    Connection,
)
from pyspark_klog.client.transport.sasl_exchange import Mechanism
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import KlogError

IDLE_PROBE_MS = 1_000
"""Before the next request over a connection that was unused for at least this time, and on which no
request waits for a response, the client checks whether the broker has closed the connection."""
_NOT_READY = (ClientConnectionState.NEGOTIATING, ClientConnectionState.AUTHENTICATING)


class LinkSecurity(Protocol):
    """TLS and SASL for the connections of one client; `client/security/driver.py` implements it."""

    def wrap(self, sock: socket.socket, host: str, peer: str) -> socket.socket:
        """Return the socket after the TLS handshake, or unchanged if TLS is not used.

        :raises ClientError: if the handshake fails; then the socket is closed
        """

    def link(
        self,
        address: Address,
        connection: Connection,
        sock: socket.socket,
        selector: selectors.BaseSelector,
    ) -> Link:
        """Return the `Link` that moves the bytes of ``connection`` over ``sock``, a socket that
        `wrap` returned."""

    def mechanism(self) -> Mechanism | None:
        """Return the SASL mechanism for one new authentication; None if SASL is not used.

        :raises ClientError: if there is no password or token
        """


class Links:
    """Connections to the servers ``bootstrap`` and the cluster's brokers, used by one thread."""

    def __init__(
        self,
        bootstrap: Iterable[Address],
        settings: ClientSettings,
        *,
        security: LinkSecurity | None,
        now_ms: Callable[[], int],
        sleep: Callable[[float], None],
        random: Callable[[], float],
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._settings = settings
        self._now_ms = now_ms
        self._sleep = sleep
        self._random = random
        self._selector = selectors.DefaultSelector()
        self._security = security
        self._links: dict[Address, Link] = {}
        self._failures: dict[Address, tuple[int, int]] = {}
        """By address: the number of failed attempts in a row to make a connection ready for
        requests, and the time of the last failure in ms of the client's clock."""
        self._reconnect = Backoff(
            settings.number("reconnect.backoff.ms"), settings.number("reconnect.backoff.max.ms")
        )

    def __iter__(self) -> Iterator[Link]:
        """Iterate over a copy of the list of current connections."""
        return iter(list(self._links.values()))

    def close(self) -> None:
        """Close every connection for good."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._selector.close()

    def link_to(self, address: Address, deadline_ms: int) -> Link:
        """A ready connection to an address, opened if needed.

        :raises KlogError: if the connection can't be made ready before the deadline, most often a
            ClientError
        """
        link = self._links.get(address)
        if link is not None and self._is_stale(link):
            self._drop(link)
            link = None
        if link is None:
            self._wait_to_reconnect(address, deadline_ms)
            try:
                link = _connect(
                    address,
                    self._settings,
                    self._selector,
                    self._now_ms,
                    deadline_ms,
                    self._security,
                )
            except ClientError:
                self._note_failure(address)
                raise
            self._links[address] = link
        elif self._security is not None and link.connection.authentication_due(self._now_ms()):
            self._authenticate_again(link, self._security)
        while link.connection.state is not ClientConnectionState.READY:
            if link.connection.error is not None:
                self._note_failure(address)
                self._drop(link)
                raise link.connection.error
            self.poll(deadline_ms)
            if self._now_ms() >= deadline_ms and link.connection.state in _NOT_READY:
                raise TimedOut(f"{address} did not answer in time: {link.connection.state.value}")
        self._failures.pop(address, None)
        link.last_used_ms = self._now_ms()
        return link

    def link_to_any(
        self, known: Iterable[Address], deadline_ms: int, doubted: Address | None = None
    ) -> Link:
        """A ready connection to any broker: an open connection, else a new one to an address of
        ``known``, else to a bootstrap server. Addresses whose last connection attempt has failed
        come last. ``doubted`` is the address of a broker whose metadata seems to be old: it comes
        after all other addresses whose last attempt has not failed.

        An address that accepts the connection but does not answer costs at most half of the time
        until the deadline, unless it is the last one.

        :raises NoBrokerAvailable: naming each address and why it failed
        :raises TimedOut: naming each address, if the last one did not answer until the deadline
        :raises KlogError: the first other error that is not retriable, without trying further
            addresses
        """
        now_ms = self._now_ms()
        for link in list(self._links.values()):
            connection = link.connection
            if link.address == doubted or connection.authentication_due(now_ms):
                # The loop below may still choose the address of this link. If an authentication is
                # due, `link_to` then authenticates again.
                continue
            if connection.state is ClientConnectionState.READY and not self._is_stale(link):
                link.last_used_ms = now_ms
                return link
        shuffled = sorted(known, key=lambda _: self._random())
        addresses = dict.fromkeys([*shuffled, *self._bootstrap, *self._links])
        order = sorted(addresses, key=lambda each: (each in self._failures, each == doubted))
        reasons: list[str] = []
        for address in order:
            until_ms = deadline_ms
            if address != order[-1]:
                until_ms -= max(deadline_ms - self._now_ms(), 0) // 2
            try:
                return self.link_to(address, until_ms)
            except TimedOut as error:
                reasons.append(str(error))
                if address == order[-1]:
                    raise TimedOut("; ".join(reasons)) from error
                self._note_failure(address)
            except KlogError as error:
                if not is_retriable(error):
                    raise
                reasons.append(str(error))
        raise NoBrokerAvailable(
            f"no broker could be reached: {'; '.join(reasons)}; check "
            f"{self._settings.prefix}bootstrap.servers, and whether these addresses can be reached "
            f"from {this_host()}"
        )

    def poll(self, deadline_ms: int) -> None:
        """Move bytes on all connections. Return once a socket was ready, a connection has ended or
        a response is overdue; at ``deadline_ms`` at the latest."""
        for link in list(self._links.values()):
            if link.connection.to_send() is not None:
                link.send_pending()
            if not link.is_open:
                self._drop(link)
                # The connection's requests have failed; the caller of `poll` may wait for one of
                # their responses, so return soon.
                deadline_ms = self._now_ms()
        due = [deadline_ms]
        due += [d for k in self._links.values() if (d := k.connection.next_deadline_ms())]
        wait_s = max(min(due) - self._now_ms(), 0) / 1000
        for key, events in self._selector.select(wait_s):
            ready: Link = key.data
            if events & selectors.EVENT_WRITE:
                ready.send_pending()
            if events & selectors.EVENT_READ:
                ready.receive_available()
        now_ms = self._now_ms()
        for link in list(self._links.values()):
            link.connection.on_deadline(now_ms)
            if not link.is_open:
                self._drop(link)

    def _authenticate_again(self, link: Link, security: LinkSecurity) -> None:
        """Begin to authenticate again (KIP-368). Requests may still be unanswered: the broker
        answers them first."""
        mechanism = security.mechanism()
        assert mechanism is not None
        link.connection.authenticate(mechanism, self._now_ms())
        link.send_pending()

    def _is_stale(self, link: Link) -> bool:
        """Whether a connection has ended, or was unused for connections.max.idle.ms while no
        request waited for its response."""
        idle_ms = self._now_ms() - link.last_used_ms
        longest_ms = self._settings.number("connections.max.idle.ms")
        if link.is_open and link.connection.in_flight == 0 and idle_ms >= IDLE_PROBE_MS:
            link.receive_available()
            if 0 <= longest_ms <= idle_ms:
                return True
        return not link.is_open

    def _wait_to_reconnect(self, address: Address, deadline_ms: int) -> None:
        failures, last_ms = self._failures.get(address, (0, 0))
        if failures == 0:
            return
        wait_ms = last_ms + self._reconnect.wait_ms(failures, self._random) - self._now_ms()
        if wait_ms > 0:
            self._sleep(min(wait_ms, max(deadline_ms - self._now_ms(), 0)) / 1000)

    def _note_failure(self, address: Address) -> None:
        self._failures[address] = (self._failures.get(address, (0, 0))[0] + 1, self._now_ms())

    def _drop(self, link: Link) -> None:
        link.close()
        if self._links.get(link.address) is link:
            del self._links[link.address]


def this_host() -> str:
    """This machine's name, for messages about addresses that cannot be reached from it."""
    return socket.gethostname()


def _open_socket(address: Address, limit_s: Callable[[], float]) -> socket.socket:
    """A socket that is connected to the first IP address of the host that accepts a connection.
    ``limit_s`` returns how long the next address is tried, in seconds.

    :raises OSError: of the last address
    """
    failure = OSError("the host's name has no address")
    for *_, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        ip, port, *more = place
        # A link-local address of IPv6 can be used only with its scope, the last part of its place.
        host = f"{ip}%{more[1]}" if more and more[1] else str(ip)
        try:
            return socket.create_connection((host, int(port)), timeout=limit_s())
        except OSError as error:
            failure = error
    raise failure


def _connect(
    address: Address,
    settings: ClientSettings,
    selector: selectors.BaseSelector,
    now_ms: Callable[[], int],
    deadline_ms: int,
    security: LinkSecurity | None,
) -> Link:
    """A connection whose socket is connected, and which has begun to ask for the API versions.

    The IP addresses of the host's name are tried until one accepts, each for at most
    socket.connection.setup.timeout.ms, and all together until the deadline. The TLS handshake, with
    the same limits, is done when the function returns; SASL begins once the API versions are known.

    :raises ConnectionFailed: naming the address and the reason
    :raises ClientError: if the connection can't be secured as ``security`` requires
    """
    mechanism = security.mechanism() if security else None
    setup_ms = settings.number("socket.connection.setup.timeout.ms")

    def limit_s() -> float:
        return max(min(setup_ms, deadline_ms - now_ms()), 1) / 1000

    try:
        sock = _open_socket(address, limit_s)
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConnectionFailed(f"could not connect to {address}: {text}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, option in (
        ("receive.buffer.bytes", socket.SO_RCVBUF),
        ("send.buffer.bytes", socket.SO_SNDBUF),
    ):
        if settings.number(name) > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, settings.number(name))
    if security is not None:
        sock.settimeout(limit_s())
        sock = security.wrap(sock, address.host, str(address))
    sock.setblocking(False)
    connection = Connection(
        str(address),
        client_id=settings.text("client.id"),
        request_timeout_ms=settings.number("request.timeout.ms"),
        max_response_bytes=MAX_RESPONSE_BYTES,
        mechanism=mechanism,
    )
    make_link = Link if security is None else security.link
    link = make_link(address, connection, sock, selector)
    connection.connected(now_ms())
    link.send_pending()
    return link
