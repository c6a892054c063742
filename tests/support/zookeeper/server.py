"""A real ZooKeeper for tests (`pyspark_klog/testing/zookeeper.py`), and the end of its sessions.

A server of a test on `ZooKeeper` can stop, start on the same data, be killed and stand still.
`expire` ends somebody else's session as the server itself would: without a word to its client.
"""

import contextlib
import socket
import struct

from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.eventually import eventually

__all__ = ["ZooKeeper", "expire"]

_CLOSE_SESSION = -11
# A server makes a session's password from its id, with Java's Random, and this.
_SECRET = 0xB3415C00
_MULTIPLIER = 0x5DEECE66D
_MASK_48 = (1 << 48) - 1


def expire(zookeeper: ZooKeeper, session_id: int) -> None:
    """Ends a session: its nodes are gone when this returns; its client hears of it when it asks."""
    if not _end(zookeeper, session_id):
        raise AssertionError(f"ZooKeeper does not know the session 0x{session_id:x}")
    # A session is at one connection, the newest: its client may have been quicker than the end.
    eventually(lambda: not _end(zookeeper, session_id), what="the end of the session")


def _end(zookeeper: ZooKeeper, session_id: int) -> bool:
    """Takes the session over and ends it, unless its client takes it back. False: it is over."""
    host, _, port = zookeeper.address.partition(":")
    hello = struct.pack(">iqiq", 0, 0, 10_000, session_id)
    hello += struct.pack(">i16s?", 16, _password(session_id), False)
    answer = b""
    with socket.create_connection((host, int(port)), 10.0) as connection:
        for frame in (hello, struct.pack(">ii", 1, _CLOSE_SESSION)):
            connection.sendall(struct.pack(">i", len(frame)) + frame)
        with contextlib.suppress(ConnectionError):
            while some := connection.recv(4096):
                answer += some
    # Size, version, then the session's time: 0 for one that is over.
    return len(answer) < 12 or struct.unpack_from(">i", answer, 8)[0] > 0


def _password(session_id: int) -> bytes:
    """The 16 bytes that ``new Random(id ^ secret).nextBytes`` gives."""
    state = ((session_id ^ _SECRET) ^ _MULTIPLIER) & _MASK_48
    password = b""
    for _ in range(4):
        state = (state * _MULTIPLIER + 0xB) & _MASK_48
        password += struct.pack("<I", state >> 16)
    return password
