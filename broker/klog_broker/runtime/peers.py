"""Connections to the other brokers of a cluster, in the loop, by their names or addresses."""

import logging
from functools import partial

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net.sockets import Network, StreamSocket
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import MAX_REPLY_BYTES
from pyspark_klog.client.transport.evented_connection import EventedConnection, EventedSettings

_log = logging.getLogger("klog.peers")

_JITTER_STEPS = 1 << 16


class Peers:
    """Makes connections. `helpers` look names up. `from_address` is this end's IP address; None:
    the system's choice."""

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
        self._connector = _LookingUp(helpers, network)

    def connect(
        self,
        host: str,
        port: int,
        *,
        max_in_flight: int = 5,
        max_reply_bytes: int = MAX_REPLY_BYTES,
    ) -> EventedConnection:
        """A connection of the caller's own, made when its first request needs it and anew after it
        is lost. The requests fail then, and while a name is being looked up; senders try again."""
        settings = EventedSettings(
            client_id=self._client_id,
            from_address=self._from_address,
            max_in_flight=max_in_flight,
            max_reply_bytes=max_reply_bytes,
        )
        return EventedConnection(
            Address(host, port),
            settings,
            loop=self._loop,
            connector=self._connector,
            random=lambda: self._chance.below(_JITTER_STEPS) / _JITTER_STEPS,
        )


class _LookingUp:
    """A `Connector` that takes names. A name is looked up beside the loop, for each connection
    anew: until its address is there, connecting fails, and is tried again as after any failure."""

    def __init__(self, helpers: Helpers, network: Network) -> None:
        self._helpers = helpers
        self._network = network
        self._found: dict[str, str] = {}
        self._under_way: set[str] = set()

    def connect(self, host: str, port: int, from_address: str | None, /) -> StreamSocket:
        try:
            return self._network.connect(host, port, from_address)
        except ValueError:
            address = self._found.pop(host, None)
        if address is not None:
            return self._network.connect(address, port, from_address)
        if host not in self._under_way:
            self._under_way.add(host)
            self._helpers.submit(
                lambda: self._network.look_up(host), partial(self._looked_up, host)
            )
        raise OSError(f"the address of {host} is being looked up")

    def _looked_up(self, host: str, address: str | None, error: BaseException | None) -> None:
        self._under_way.discard(host)
        if address is not None:
            self._found[host] = address
        else:
            _log.warning("the broker at %s has no address: %s", host, error)
