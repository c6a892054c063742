"""A bare loop of receives and sends: the most that a broker in Python can reach on this machine.

The loop waits for ready sockets, receives, and answers: with equal bytes to every request, or with
the piece of a file that begins at the offset in a Fetch. The loop decodes nothing, checks nothing
and keeps no state. The loop has a process of its own, as the brokers have; like the load generator
the process takes a line on stdin (a ``Bare``) and answers with one on stdout.
"""

import json
import os
import select
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from benchmarks._load.jobs import Target
from benchmarks._load.pipe import Child
from pyspark_klog.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.headers import encode_response_parts

_RECEIVE_BYTES = 128 * 1024
_TIMEOUT_S = 20.0
_CORRELATION_ID = slice(8, 12)


@dataclass(frozen=True)
class Bare:
    """The loop's response: ``reply`` (hexadecimal) if given, else Fetch ``version`` of ``path``.

    The file ``path`` is one partition, whose batches have ``batch_bytes`` and ``records`` each.
    """

    reply: str = ""
    path: str = ""
    version: int = 0
    topic_id: str = ""
    chunk_bytes: int = 0
    batch_bytes: int = 1
    records: int = 1
    offset_at: int = 0


class BareLoop(Child):
    """The process of the bare loop."""

    def __init__(self) -> None:
        super().__init__("benchmarks._load.bare")

    def serve(self, bare: Bare, topic: str = "") -> Target:
        """Answer with ``bare`` from now on; return the address as a target."""
        found = self.send_line(json.dumps(asdict(bare)), _TIMEOUT_S)
        uuid = bare.topic_id or str(UUID(int=0))
        return Target("127.0.0.1", found["port"], found["pid"], topic, uuid)


class _Loop:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(sys.stdin, select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        # For each socket with a full buffer: the place of the rest of its piece, and the bytes
        # after it.
        self._unsent: dict[int, tuple[int, int, bytes]] = {}
        self._bare = Bare()
        self._reply = bytearray()
        self._file = -1
        self._file_bytes = 0
        self._around: dict[int, tuple[bytearray, bytes]] = {}

    def run(self) -> None:
        buffer = bytearray(_RECEIVE_BYTES)
        view = memoryview(buffer)
        listener, commands = self._listener.fileno(), sys.stdin.fileno()
        while True:
            for number, events in self._epoll.poll():
                if number == listener:
                    self._accept()
                elif number == commands:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self._set_up(Bare(**json.loads(line)))
                elif events & select.EPOLLOUT:
                    self._send_on(self._sockets[number])
                else:
                    sock = self._sockets[number]
                    if not sock.recv_into(view):
                        del self._sockets[number]
                        sock.close()
                    elif self._reply:
                        self._reply[4:8] = buffer[_CORRELATION_ID]
                        sock.sendmsg([self._reply])
                    else:
                        self._send_piece(sock, buffer)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[sock.fileno()] = sock
        self._epoll.register(sock, select.EPOLLIN)

    def _set_up(self, bare: Bare) -> None:
        self._bare = bare
        self._reply = bytearray.fromhex(bare.reply)
        self._around.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if bare.path:
            self._file = os.open(bare.path, os.O_RDONLY)
            self._file_bytes = os.fstat(self._file).st_size
        answer = {"port": self._listener.getsockname()[1], "pid": os.getpid()}
        print(json.dumps({"measured": answer}), flush=True)

    def _send_piece(self, sock: socket.socket, request: bytearray) -> None:
        bare = self._bare
        offset = int.from_bytes(request[bare.offset_at : bare.offset_at + 8], "big")
        position = offset // bare.records * bare.batch_bytes
        size = min(bare.chunk_bytes, self._file_bytes - position)
        around = self._around.get(size)
        if around is None:
            around = self._around[size] = self._encode(size)
        head, tail = around
        head[4:8] = request[_CORRELATION_ID]
        sock.sendmsg([head], (), socket.MSG_MORE)
        self._send_file(sock, position, size, tail)

    def _send_file(self, sock: socket.socket, position: int, size: int, tail: bytes) -> None:
        number = sock.fileno()
        while size:
            try:
                sent = os.sendfile(number, self._file, position, size)
            except BlockingIOError:
                if number not in self._unsent:
                    self._epoll.modify(number, select.EPOLLOUT)
                self._unsent[number] = position, size, tail
                return
            position += sent
            size -= sent
        sock.sendmsg([tail])
        if self._unsent.pop(number, None):
            self._epoll.modify(number, select.EPOLLIN)

    def _send_on(self, sock: socket.socket) -> None:
        self._send_file(sock, *self._unsent[sock.fileno()])

    def _encode(self, size: int) -> tuple[bytearray, bytes]:
        """The bytes before and after a record set of this size."""
        region: Any = FileRegion(None, 0, size)
        partition = PartitionData(high_watermark=2**40, records=region)
        topic = FetchableTopicResponse(topic_id=UUID(self._bare.topic_id), partitions=[partition])
        parts = encode_response_parts(0, FetchResponse(responses=[topic]), self._bare.version)
        head, tail = (part for part in parts if not isinstance(part, FileRegion))
        return bytearray(head), bytes(tail)


if __name__ == "__main__":
    _Loop().run()
