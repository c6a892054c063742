"""Moves a connection's bytes over TLS, without blocking.

OpenSSL returns at most one TLS record (16 KiB) a call and buffers the rest of the received bytes,
which no selector reports. So reading goes on until OpenSSL asks for more bytes, and the bytes of
several TLS records are passed on together. TLS also exchanges messages of its own: sending may have
to wait until bytes are received, and receiving may have to wait until the socket can send.
"""

import selectors
import socket
import ssl

from pyspark_klog.client.security.tls import closed_after_handshake, later_error
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.connection import ClientConnectionState, Connection
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.security.tls_config import TlsConfig


class TlsLink(Link):
    """A link, which moves the bytes of a connection, over an SSLSocket after its handshake."""

    def __init__(
        self,
        address: Address,
        connection: Connection,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        config: TlsConfig,
    ) -> None:
        super().__init__(address, connection, sock, selector)
        self._config = config
        self._sending_waits_for_bytes = False
        self._receiving_waits_for_room = False

    def send_pending(self) -> None:
        """Send the bytes that the socket accepts now. For the rest the selector waits until the
        socket has space, or until it has received the bytes that TLS needs first."""
        connection = self.connection
        self._sending_waits_for_bytes = False
        try:
            while (data := connection.to_send()) is not None:
                connection.sent(self._socket.send(data))
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLWantReadError:
            self._sending_waits_for_bytes = True
        except OSError as error:
            self._fail(error)
            return
        if self._receiving_waits_for_room:
            self.receive_available()
        self._wait()

    def receive_available(self) -> None:
        """Receive and pass the bytes to the connection until OpenSSL has no more bytes."""
        connection = self.connection
        self._receiving_waits_for_room = False
        has_more = True
        while has_more and connection.state is not ClientConnectionState.CLOSED:
            try:
                with connection.receive_buffer() as buffer:
                    count, has_more, is_at_end = self._fill(buffer)
            except OSError as error:
                self._fail(error)
                return
            if count:
                connection.received(count)
            if is_at_end:
                self._end()
        if self._sending_waits_for_bytes:
            self.send_pending()
        self._wait()

    def _fill(self, buffer: memoryview) -> tuple[int, bool, bool]:
        """Receive into ``buffer``; return the number of bytes, whether more bytes may follow, and
        whether the peer has closed the connection."""
        count, room = 0, len(buffer)
        while count < room:
            try:
                got = self._socket.recv_into(buffer[count:])
            except ssl.SSLWantReadError:
                return count, False, False
            except ssl.SSLWantWriteError:
                self._receiving_waits_for_room = True
                return count, False, False
            except OSError:
                if count:
                    # Return the bytes that came before the error; the next call meets the failed
                    # connection again.
                    return count, True, False
                raise
            if got == 0:
                return count, False, True
            count += got
        return count, True, False

    def _wait(self) -> None:
        has_to_send = self.connection.to_send() is not None and not self._sending_waits_for_bytes
        self._set_interest(has_to_send or self._receiving_waits_for_room)

    def _end(self) -> None:
        if not self._is_refused_quietly():
            self.connection.received(0)

    def _fail(self, error: OSError) -> None:
        if isinstance(error, ssl.SSLZeroReturnError):
            self._end()
        elif isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            is_ready = self.connection.state is ClientConnectionState.READY
            peer = str(self.address)
            self.connection.lost(later_error(error, peer, self._config, is_ready=is_ready))
        elif not self._is_refused_quietly():
            super()._fail(error)

    def _is_refused_quietly(self) -> bool:
        """Return whether the broker has closed the connection before it answered ApiVersions; if
        so, end the connection with the error for that (`closed_after_handshake`)."""
        if self.connection.state is not ClientConnectionState.NEGOTIATING:
            return False
        self.connection.lost(closed_after_handshake(str(self.address), self._config))
        return True
