"""Prepares attempts to connect: looks up host names, and has passwords, tokens and certificates
ready. All of this can block, so it runs in helper threads."""

import ssl
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from socket import SOCK_STREAM, getaddrinfo

from pyspark_klog.client.errors import ClientError, ConnectionFailed
from pyspark_klog.client.security.driver import Security
from pyspark_klog.client.security.tls_stream import TlsStream
from pyspark_klog.client.transport.addresses import Address, is_ip_address
from pyspark_klog.client.transport.event_loop import LoopStream
from pyspark_klog.client.transport.preparation import Prepared, SecureStream
from pyspark_klog.errors import KlogError
from pyspark_klog.security.config import SecurityConfig
from pyspark_klog.security.tls_config import TlsConfig


class Preparation:
    """Prepares the connections of one client, each in a thread of its own.

    ``post`` runs a function in the client's loop. A host name with several addresses gets them in
    turn, one an attempt.
    """

    def __init__(
        self, config: SecurityConfig | None, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self._security = None if config is None else Security(config)
        self._post = post
        self._lock = threading.Lock()
        self._attempts: dict[Address, count[int]] = {}

    def prepare(self, address: Address, done: Callable[[Prepared | KlogError], None]) -> None:
        """Find what an attempt to connect to ``address`` needs, and call ``done`` in the loop."""
        if self._security is None and is_ip_address(address.host):
            self._post(partial(done, Prepared(address.host)))
            return
        attempt = next(self._attempts.setdefault(address, count()))
        target = partial(self._run, address, attempt, done)
        threading.Thread(target=target, name=f"connect-{address}", daemon=True).start()

    def _run(
        self, address: Address, attempt: int, done: Callable[[Prepared | KlogError], None]
    ) -> None:
        found: Prepared | KlogError
        try:
            found = self._find(address, attempt)
        except KlogError as error:
            found = error
        except Exception as error:  # a bug must not leave the connection waiting
            found = ClientError(f"could not connect to {address}: {type(error).__name__}: {error}")
        self._post(partial(done, found))

    def _find(self, address: Address, attempt: int) -> Prepared:
        host = _look_up(address, attempt)
        if self._security is None:
            return Prepared(host)
        with self._lock:  # of a token endpoint, for example, only one thread asks for a token
            tls = self._security.tls
            secure = None if tls is None else _secure(tls.context(), address, tls.config)
            return Prepared(host, self._security.mechanism(), secure)


def _secure(
    context: ssl.SSLContext, address: Address, config: TlsConfig
) -> Callable[[LoopStream], SecureStream]:
    return lambda stream: TlsStream(stream, context, address, config)


def _look_up(address: Address, attempt: int) -> str:
    try:
        found = getaddrinfo(*address, type=SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ConnectionFailed(f"could not connect to {address}: {text}") from None
    *_, place = found[attempt % len(found)]
    ip, _port, *more = place
    # A link-local address of IPv6 can be used only with its scope, the last part of its place.
    return f"{ip}%{more[1]}" if more and more[1] else str(ip)
