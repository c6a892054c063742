"""A client that sends exactly the bytes that a test chooses: one socket, frames out and in."""

import socket
import struct
from typing import Any

from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.message import Request

_SIZE = struct.Struct(">i")


class ConnectionClosed(AssertionError):
    """The broker closed the connection while an answer was awaited."""


class RawClient:
    """A blocking connection. Every wait ends after ``timeout_s``, as a TimeoutError."""

    def __init__(
        self, address: tuple[str, int], client_id: str | None = "raw", timeout_s: float = 20
    ) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._correlation_id = 0
        self.client_id = client_id
        self.last_correlation_id: int | None = None

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def frame(self, request: Request, version: int) -> bytes:
        """A request's bytes, as ``send`` would send them."""
        self._correlation_id += 1
        header = RequestHeader(request.api_key, version, self._correlation_id, self.client_id)
        return encode_request(header, request)

    def send(self, request: Request, version: int) -> int:
        """Sends a request; returns its correlation id."""
        self._socket.sendall(self.frame(request, version))
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self._socket.sendall(data)

    def end_sending(self) -> None:
        """Shut down the sending side; responses can still be received."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive_frame(self) -> bytes:
        """The next answer without its size. ConnectionClosed if the broker closes instead."""
        while True:
            if len(self._received) >= 4:
                end = 4 + _SIZE.unpack_from(self._received)[0]
                if len(self._received) >= end:
                    frame = bytes(self._received[4:end])
                    del self._received[:end]
                    self.last_correlation_id = _SIZE.unpack_from(frame)[0]
                    return frame
            data = self._receive_some()
            if not data:
                raise ConnectionClosed("the broker closed the connection")
            self._received += data

    def receive(self, request: type[Request] | Request, version: int) -> Any:
        """The next answer, which is one to a request of this class."""
        return decode_response(self.receive_frame(), request.api_key, version)

    def call(self, request: Request, version: int) -> Any:
        """Send a request and receive its response."""
        correlation_id = self.send(request, version)
        response = self.receive(request, version)
        assert self.last_correlation_id == correlation_id
        return response

    def is_closed_by_broker(self) -> bool:
        """Waits for the broker to close; False if it sends something instead."""
        return not self._receive_some()

    def has_answer(self, within_s: float) -> bool:
        """Whether anything arrives in that time."""
        before = self._socket.gettimeout()
        self._socket.settimeout(within_s)
        try:
            data = self._receive_some()
        except TimeoutError:
            return bool(self._received)
        finally:
            self._socket.settimeout(before)
        self._received += data
        return bool(self._received)

    def _receive_some(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except ConnectionResetError:
            return b""
