"""A real ZooKeeper for tests (`pyspark_klog/testing/zookeeper.py`), and the end of its sessions.

A server of a test on `ZooKeeper` can stop, start on the same data, be killed and stand still.
`expire` ends somebody else's session as the server itself would: without a word to its client.
"""

import socket
import struct

from pyspark_klog.testing.zookeeper import ZooKeeper

__all__ = ["ZooKeeper", "expire"]

_CLOSE_SESSION = -11
# A server makes a session's password from its id, with Java's Random, and this.
_SECRET = 0xB3415C00
_MULTIPLIER = 0x5DEECE66D
_MASK_48 = (1 << 48) - 1


def expire(zookeeper: ZooKeeper, session_id: int) -> None:
    """Ends a session: its nodes are gone when this returns; its client hears of it when it asks."""
    host, _, port = zookeeper.address.partition(":")
    with socket.create_connection((host, int(port)), 10.0) as connection:
        password = _password(session_id)
        hello = struct.pack(">iqiq", 0, 0, 10_000, session_id)
        _send(connection, hello + struct.pack(">i16s?", len(password), password, False))
        _version, timeout_ms = struct.unpack_from(">ii", _receive(connection))
        if timeout_ms <= 0:
            raise AssertionError(f"ZooKeeper does not know the session 0x{session_id:x}")
        _send(connection, struct.pack(">ii", 1, _CLOSE_SESSION))
        # The session is over when the connection is: at times without an answer.
        while connection.recv(4096):
            pass


def _password(session_id: int) -> bytes:
    """The 16 bytes that ``new Random(id ^ secret).nextBytes`` gives."""
    state = ((session_id ^ _SECRET) ^ _MULTIPLIER) & _MASK_48
    password = b""
    for _ in range(4):
        state = (state * _MULTIPLIER + 0xB) & _MASK_48
        password += struct.pack("<I", state >> 16)
    return password


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(struct.pack(">i", len(frame)) + frame)


def _receive(connection: socket.socket) -> bytes:
    size = struct.unpack(">i", _read(connection, 4))[0]
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = connection.recv(size - len(data))
        if not some:
            raise AssertionError("ZooKeeper closed the connection at once")
        data += some
    return data
