"""TLS on the streams of `EventedConnection`: encrypts and decrypts in memory, without blocking."""

import ssl
from contextlib import suppress
from typing import Any, cast

from pyspark_klog.client.errors import ClientError
from pyspark_klog.client.security.tls import (
    closed_after_handshake,
    handshake_error,
    later_error,
    no_host_name,
)
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import ClientConnectionState
from pyspark_klog.client.transport.event_loop import READABLE, WRITABLE, LoopStream
from pyspark_klog.security.tls_config import TlsConfig

_RECEIVED_AT_ONCE_BYTES = 256 << 10
_SENT_AT_ONCE_BYTES = 256 << 10


class TlsStream:
    """A stream over TLS on top of a plain one. The first bytes to be sent begin the handshake.

    :raises TlsFailed: if the address has no host name that TLS can check
    """

    def __init__(
        self, stream: LoopStream, context: ssl.SSLContext, address: Address, config: TlsConfig
    ) -> None:
        self._stream = stream
        self._address = address
        self._config = config
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        host = address.host
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        except ValueError:
            raise no_host_name(host, str(address)) from None
        self._is_established = False
        self._unsent = memoryview(b"")
        self._buffer = bytearray(_RECEIVED_AT_ONCE_BYTES)

    def fileno(self) -> int:
        """Return the descriptor of the plain stream."""
        return self._stream.fileno()

    def connect_error(self) -> OSError | None:
        """Return the error with which connecting has failed, or None."""
        return self._stream.connect_error()

    def close(self) -> None:
        """Tell the peer that this is the end, or why the handshake has failed, if it takes the few
        bytes now; and close the plain stream."""
        with suppress(OSError):
            if self._is_established:
                self._tls.unwrap()
        with suppress(OSError):
            self.flush()
        self._stream.close()

    # --- sending ---------------------------------------------------------------------------------
    def send(self, parts: list[Any]) -> int:
        """Encrypt bytes of ``parts`` and return how many; `flush` sends the rest of them."""
        self.flush()
        self._establish()
        if not self._is_established:
            self.flush()
            raise BlockingIOError
        count = self._tls.write(memoryview(parts[0])[:_SENT_AT_ONCE_BYTES])
        with suppress(BlockingIOError):
            self.flush()
        return count

    def flush(self) -> None:
        """Send the encrypted bytes that the plain stream has not accepted yet.

        :raises BlockingIOError: if some are left
        """
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            self._unsent = self._unsent[self._stream.send([self._unsent]) :]

    def interest(self, *, has_to_send: bool) -> int:
        """Return READABLE, and WRITABLE if encrypted bytes wait, or the caller's bytes after the
        handshake."""
        waits = bool(self._unsent or self._outgoing.pending)
        return READABLE | (WRITABLE if waits or (has_to_send and self._is_established) else 0)

    # --- receiving -------------------------------------------------------------------------------
    def recv_into(self, buffer: memoryview) -> int:
        """Fill ``buffer`` as far as received bytes can be decrypted; 0 at the end of the stream."""
        count = 0
        try:
            while count < len(buffer):
                got = self._decrypt(buffer[count:])
                if got == 0:
                    break
                count += got
        except OSError:
            if not count:
                raise
        return count

    @property
    def has_received(self) -> bool:
        """Whether there may be more to decrypt."""
        return self._is_established and bool(self._tls.pending() or self._incoming.pending)

    def _decrypt(self, buffer: memoryview) -> int:
        while True:
            try:
                self._establish()
                if self._is_established:
                    # With a buffer `read` returns a number of bytes; the type hints say bytes.
                    count: Any = self._tls.read(len(buffer), cast("bytearray", buffer))
                    return int(count)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return 0
            with suppress(BlockingIOError):
                self.flush()
            got = self._stream.recv_into(memoryview(self._buffer))
            if got == 0:
                if not self._is_established:
                    raise ssl.SSLEOFError
                return 0
            self._incoming.write(memoryview(self._buffer)[:got])

    def _establish(self) -> None:
        """Go on with the handshake as far as the received bytes allow."""
        if self._is_established:
            return
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
            self._is_established = True

    # --- errors ----------------------------------------------------------------------------------
    def error(self, error: OSError, state: ClientConnectionState) -> ClientError | None:
        """Return the client's error for an error of this stream in a state of the connection; None
        if the error has nothing to do with TLS."""
        peer = str(self._address)
        if not self._is_established:
            return handshake_error(error, self._address.host, peer, self._config)
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            is_ready = state is ClientConnectionState.READY
            return later_error(error, peer, self._config, is_ready=is_ready)
        if state is ClientConnectionState.NEGOTIATING:
            return closed_after_handshake(peer, self._config)
        return None
