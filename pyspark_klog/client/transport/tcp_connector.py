"""TCP streams for `EventedConnection`."""

import errno
import os
import socket
from ipaddress import ip_address

from pyspark_klog.client.settings.client_settings import ClientSettings


class TcpStream:
    """A non-blocking TCP connection, with TCP_NODELAY and keep-alive probes."""

    __slots__ = ("_socket", "close", "fileno", "recv_into", "send")

    def __init__(self, connecting: socket.socket) -> None:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connecting
        self.close = connecting.close
        self.fileno = connecting.fileno
        self.recv_into = connecting.recv_into
        self.send = connecting.sendmsg

    def connect_error(self) -> OSError | None:
        """Return the error with which connecting has failed, or None."""
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return OSError(number, os.strerror(number)) if number else None


class TcpConnector:
    """Makes the streams of one client; ``settings`` has the sizes of the sockets' buffers."""

    def __init__(self, settings: ClientSettings) -> None:
        self._options = [
            (option, settings.number(name))
            for name, option in (
                ("receive.buffer.bytes", socket.SO_RCVBUF),
                ("send.buffer.bytes", socket.SO_SNDBUF),
            )
            if settings.number(name) > 0
        ]

    def connect(self, host: str, port: int, from_address: str | None = None) -> TcpStream:
        """Begin to connect to an IP address (an IPv6 address may end with ``%scope``).

        :raises OSError: if the system refuses at once
        :raises ValueError: if ``host`` is a name
        """
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        connecting = socket.socket(family, socket.SOCK_STREAM)
        try:
            for option, size in self._options:
                connecting.setsockopt(socket.SOL_SOCKET, option, size)
            stream = TcpStream(connecting)
            if from_address is not None:
                connecting.bind((from_address, 0))
            number = connecting.connect_ex((host, port))
            if number not in (0, errno.EINPROGRESS):
                raise OSError(number, os.strerror(number))
        except BaseException:
            connecting.close()
            raise
        return stream
