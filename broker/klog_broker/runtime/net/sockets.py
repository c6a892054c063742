"""The interface of the network, implemented here by real sockets, and in a simulation by a router
with a virtual clock. Code that uses the network gets the implementation as a parameter."""

import errno
import os
import socket
import sys
from ipaddress import ip_address
from typing import Any, Protocol

from klog_broker.runtime.net.socket_calls import SocketCalls

_CAN_SEND_FILE = sys.platform == "linux"
_MORE = getattr(socket, "MSG_MORE", 0)


class StreamSocket(Protocol):
    """A non-blocking stream. A stream from ``Network.connect`` may still be connecting.

    Methods raise OSError; BlockingIOError means that the call would have to wait.
    """

    is_plain: bool
    """Whether the descriptor carries the stream's bytes unencrypted (no TLS): SocketCalls (compiled
    code that serves many sockets in one call) serves only plain streams."""

    def fileno(self) -> int:
        """Return the socket's descriptor, for the poller."""

    def connect_error(self) -> OSError | None:
        """Return why the connect of ``Network.connect`` failed; None if it succeeded.

        Call once, when the poller first reports the stream as WRITABLE. An earlier result means
        nothing.
        """

    def recv_into(self, buffer: memoryview) -> int:
        """Receive into `buffer`; return the number of bytes, 0 at the end of the stream."""

    def send(self, parts: list[Any]) -> int:
        """Send byte strings one after another; return how many bytes the socket accepted."""

    def send_more(self, parts: list[Any]) -> int:
        """Send like ``send``, when more bytes follow at once: the system may join both in one
        packet (MSG_MORE)."""

    def send_file(self, file: Any, position: int, size_bytes: int) -> int:
        """Send ``size_bytes`` bytes of a `File`, from ``position`` on; return how many bytes the
        socket accepted.

        Returns 0 if the file ends at or before `position`.
        """

    def close(self) -> None: ...

    def remote_address(self) -> tuple[str, int]: ...

    def local_address(self) -> tuple[str, int]: ...


class ListeningSocket(Protocol):
    """A non-blocking listener."""

    def fileno(self) -> int: ...

    def accept(self) -> StreamSocket:
        """Accept the next connection; raise BlockingIOError if none is waiting."""

    def address(self) -> tuple[str, int]:
        """Return the host that was given to ``Network.listen`` and the actual port."""

    def close(self) -> None: ...


class Network(Protocol):
    """Makes listeners, and connections to other brokers."""

    def socket_calls(self, arena: memoryview, responses: memoryview) -> SocketCalls | None:
        """Return an object that receives from many sockets into ``arena`` and sends to many sockets
        from ``responses``, in compiled code; None without numba, or on a system other than Linux.

        Call only after the compiled produce code (the produce kernel) was loaded: before, this
        method would import numba and block the loop.
        """

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        """Listen on host (empty: every address) and port (0: any free port).

        Raises OSError if the address is already in use.
        """

    def connect(self, host: str, port: int, from_address: str | None = None) -> StreamSocket:
        """Start to connect, without blocking.

        The connect has succeeded or failed when the poller first reports the stream as WRITABLE:
        call ``StreamSocket.connect_error`` then. The caller limits the time until then.

        ``host`` and ``from_address`` (the local address; None: the system chooses) are IPv4 or IPv6
        addresses. A host name raises ValueError, because looking up a name blocks: call ``look_up``
        in a helper thread. Raises OSError if the system refuses at once, for example because
        ``from_address`` is not an address of this machine.
        """

    def look_up(self, host: str) -> str:
        """Return an IP address of this host name. Blocks. Raises OSError if the name has no
        address."""


class RealStreamSocket:
    """A TCP connection, with TCP_NODELAY and keep-alive probes."""

    __slots__ = ("_remote", "_sends_files", "_socket", "is_plain", "recv_into", "send")

    def __init__(
        self, connected: socket.socket, remote: tuple[str, int], sends_files: bool
    ) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connected
        self._remote = remote
        self._sends_files = sends_files
        self.is_plain = True
        # recv_into and send are called very often, so both are the socket's own methods, without a
        # wrapper.
        self.recv_into = connected.recv_into
        self.send = connected.sendmsg

    def fileno(self) -> int:
        return self._socket.fileno()

    def connect_error(self) -> OSError | None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # OSError(number, ...) returns the subclass of that number, e.g. ConnectionRefusedError.
        return OSError(number, os.strerror(number)) if number else None

    def send_more(self, parts: list[Any]) -> int:
        return self._socket.sendmsg(parts, (), _MORE)

    def send_file(self, file: Any, position: int, size_bytes: int) -> int:
        if self._sends_files:
            sent: int = file.send_to(self._socket.fileno(), position, size_bytes)
            return sent
        data = file.pread(size_bytes, position)
        return self._socket.send(data) if data else 0

    def close(self) -> None:
        self._socket.close()

    def remote_address(self) -> tuple[str, int]:
        return self._remote

    def local_address(self) -> tuple[str, int]:
        address = self._socket.getsockname()
        return address[0], address[1]


class RealListeningSocket:
    """A TCP listener."""

    def __init__(self, listening: socket.socket, host: str, sends_files: bool) -> None:
        self._socket = listening
        self._host = host
        self._sends_files = sends_files

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> RealStreamSocket:
        connected, remote = self._socket.accept()
        # A listener for IPv4 and IPv6 shows a client's IPv4 address as ::ffff:ADDRESS.
        address = str(remote[0]).removeprefix("::ffff:")
        try:
            return RealStreamSocket(connected, (address, remote[1]), self._sends_files)
        except BaseException:
            connected.close()
            raise

    def address(self) -> tuple[str, int]:
        return self._host, self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


class RealNetwork:
    """The machine's TCP network.

    Buffer sizes of None leave the system's automatic tuning on. Without ``sends_files``, bytes of
    files are read into memory and then sent, as on systems without sendfile.
    """

    def __init__(
        self,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        sends_files: bool = _CAN_SEND_FILE,
    ) -> None:
        self._sends_files = sends_files
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes

    def socket_calls(self, arena: memoryview, responses: memoryview) -> SocketCalls | None:
        # The import of socket_kernel imports numba, which is slow. Callers have loaded the compiled
        # produce code before, and numba with it.
        from klog_broker.runtime.net.socket_kernel import IS_COMPILED, SocketKernel

        return SocketKernel(arena, responses) if IS_COMPILED else None

    def listen(self, host: str, port: int, backlog: int) -> RealListeningSocket:
        family = socket.AF_INET
        target = host
        if host:
            family, target = _addresses(host)[0]
        elif socket.has_dualstack_ipv6():
            family, target = socket.AF_INET6, "::"
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and not host:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # Accepted connections inherit the buffer sizes. TCP's handshake negotiates the window
            # scale before accept returns, so the sizes must be set on the listening socket.
            if self._send_buffer_bytes is not None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if self._receive_buffer_bytes is not None:
                size = self._receive_buffer_bytes
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            listening.bind((target, port))
            listening.listen(backlog)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
        return RealListeningSocket(listening, host, self._sends_files)

    def connect(self, host: str, port: int, from_address: str | None = None) -> RealStreamSocket:
        version = ip_address(host).version
        connecting = socket.socket(
            socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_STREAM
        )
        try:
            stream = RealStreamSocket(connecting, (host, port), self._sends_files)
            if from_address is not None:
                connecting.bind((str(ip_address(from_address)), 0))
            number = connecting.connect_ex((host, port))
            if number not in (0, errno.EINPROGRESS):
                raise OSError(number, os.strerror(number))
        except BaseException:
            connecting.close()
            raise
        return stream

    def look_up(self, host: str) -> str:
        return _addresses(host)[0][1]


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Return the (family, IP address) pairs of a host name, IPv4 first.

    klog listens on, or connects to, only the first address. A name such as localhost has one of
    each family. IPv4 is the better choice for a listener, because clients that try IPv6 first then
    try IPv4, too.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [(entry[0], str(entry[4][0])) for entry in found]
