"""Connections to the other brokers of a cluster, by host name or address. Loop thread only."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.sockets import Network
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.transport.addresses import Address, is_ip_address
from pyspark_klog.client.transport.connection import MAX_RESPONSE_BYTES
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings
from pyspark_klog.client.transport.preparation import Prepared
from pyspark_klog.errors import KlogError

_log = logging.getLogger("klog.peers")

_JITTER_STEPS = 1 << 16


class Connect(Protocol):
    """Returns a new connection to a broker. The connection connects when its first request is sent
    (`Peers.connect`)."""

    def __call__(self, host: str, port: int, /) -> EventedConnection: ...


class ConnectPipelined(Protocol):
    """Returns a new connection as `Connect` does, with up to `max_in_flight` requests in flight."""

    def __call__(self, host: str, port: int, /, *, max_in_flight: int) -> EventedConnection: ...


class Peers:
    """Makes connections to other brokers.

    Helper threads (`helpers`) look up host names, because a look-up blocks. `from_address` is the
    local IP address of the connections; None lets the system choose.
    """

    def __init__(
        self,
        loop: Loop,
        helpers: Helpers,
        network: Network,
        chance: Chance,
        *,
        client_id: str,
        from_address: str | None = None,
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._client_id = client_id
        self._from_address = from_address
        self._helpers = helpers
        self._network = network

    def connect(
        self,
        host: str,
        port: int,
        *,
        max_in_flight: int = 5,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> EventedConnection:
        """Return a new connection, which connects when the first request is sent.

        If the connection is lost, its outstanding requests fail, and the next request connects
        again. A host name is looked up before each attempt to connect.
        """
        settings = EventedSettings(
            client_id=self._client_id,
            from_address=self._from_address,
            max_in_flight=max_in_flight,
            max_response_bytes=max_response_bytes,
        )
        return EventedConnection(
            Address(host, port),
            settings,
            loop=self._loop,
            connector=self._network,
            random=lambda: self._chance.below(_JITTER_STEPS) / _JITTER_STEPS,
            prepare=None if is_ip_address(host) else self._look_up,
        )

    def _look_up(self, address: Address, done: Callable[[Prepared | KlogError], None]) -> None:
        """Look up a broker's host name before an attempt to connect."""
        self._helpers.submit(
            lambda: self._network.look_up(address.host), partial(_looked_up, address, done)
        )


def _looked_up(
    address: Address,
    done: Callable[[Prepared | KlogError], None],
    host: str | None,
    error: BaseException | None,
) -> None:
    if host is not None:
        done(Prepared(host))
        return
    _log.warning("cannot look up the address of the broker at %s: %s", address.host, error)
    done(ConnectionFailed(f"could not connect to {address}: the name has no address: {error}"))
