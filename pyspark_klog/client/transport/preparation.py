"""The preparation of a connection: the broker's IP address, TLS and SASL, as Protocols.

Looking up a host name, reading certificates and fetching a token all block. So an
`EventedConnection` lets a `Prepare` function do this outside of the loop, before each attempt to
connect.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import ClientConnectionState
from pyspark_klog.client.transport.event_loop import LoopStream
from pyspark_klog.client.transport.sasl_exchange import Mechanism
from pyspark_klog.errors import KlogError


class SecureStream(LoopStream, Protocol):
    """A stream over TLS. TLS sends and receives messages of its own, so that the readiness of the
    stream is not that of its descriptor alone."""

    @property
    def has_received(self) -> bool:
        """Whether there may be bytes to receive although the descriptor is not readable."""

    def interest(self, *, has_to_send: bool) -> int:
        """Return the readiness of the descriptor to wait for; ``has_to_send``: whether the caller
        waits to send."""

    def flush(self) -> None:
        """Send the encrypted bytes that the descriptor has not accepted yet.

        :raises BlockingIOError: if some are left
        """

    def error(self, error: OSError, state: ClientConnectionState) -> KlogError | None:
        """Return the client's error for an error of this stream in a state of the connection; None
        if the error has nothing to do with TLS. The end of the stream is a
        ConnectionResetError."""


class Prepared(NamedTuple):
    """The result of a preparation, for one attempt to connect."""

    host: str
    """The IP address of the broker."""
    mechanism: Mechanism | None = None
    """Authenticates the client; None without SASL."""
    secure: Callable[[LoopStream], SecureStream] | None = None
    """Puts TLS on a stream; None without TLS."""


Prepare = Callable[[Address, Callable[[Prepared | KlogError], None]], None]
"""Prepares an attempt to connect to an address: returns at once, and later calls the given function
once, in the loop's thread, with the result or with the error."""
