"""A proxy in front of a real broker, whose connections break and whose leaders move.

Frames pass through unchanged, so any client may use it. `FaultyFront.at` sets an action for the
moment when the broker has answered a number of requests of a kind, before that response is passed
on: the client loses the response of a request that was carried out. With two ``nodes`` there are
two addresses of the one broker, and ``leader`` is the node that leads every partition; the other
node refuses requests to leaders. For that, responses are rewritten in the versions that klog's
client speaks.
"""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.metadata import MetadataResponseBroker
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.headers import decode_request, decode_response, encode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.support.security.server import receive_frame


class FaultyFront:
    """Listens on loopback until the with statement ends; ``broker`` is the real one's address."""

    def __init__(self, nodes: int = 1) -> None:
        self.broker: tuple[str, int] | None = None
        self.leader = 0
        self.asked: Counter[tuple[int, int]] = Counter()
        """Answered requests by node and api key, since `clear`."""
        self._actions: dict[tuple[int, int], Callable[[], None]] = {}
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
        self.ports = [int(each.getsockname()[1]) for each in self._listeners]
        for node in range(nodes):
            threading.Thread(target=self._accept, args=(node,), daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port`` of the first node."""
        return f"127.0.0.1:{self.ports[0]}"

    def __enter__(self) -> "FaultyFront":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._listeners:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            each.close()
        self.cut()

    def at(self, key: ApiKey, count: int, action: Callable[[], None]) -> None:
        """Do something once, when the count-th request of a kind since `clear` was answered."""
        with self._lock:
            self._actions[key, count] = action

    def clear(self) -> None:
        """Forget actions and counts; the first node leads again."""
        with self._lock:
            self._actions.clear()
            self.asked.clear()
            self.leader = 0

    @property
    def all_happened(self) -> bool:
        """Whether every action was done."""
        with self._lock:
            return not self._actions

    def cut(self) -> None:
        """Close every connection, even one that waits for a response."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    # --- inside ----------------------------------------------------------------------------------
    def _accept(self, node: int) -> None:
        while True:
            try:
                client, _ = self._listeners[node].accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, node), daemon=True).start()

    def _serve(self, client: socket.socket, node: int) -> None:
        # When one side's connection ends, the other side's connection is ended, too.
        with contextlib.suppress(OSError, EOFError), self._kept(client):
            assert self.broker is not None
            with socket.create_connection(self.broker) as behind:
                while True:
                    reply = self._answer(receive_frame(client), behind, node)
                    client.sendall(len(reply).to_bytes(4, "big") + reply)

    @contextlib.contextmanager
    def _kept(self, client: socket.socket) -> Iterator[None]:
        with client:
            with self._lock:
                self._open.add(client)
            try:
                yield
            finally:
                with self._lock:
                    self._open.discard(client)

    def _answer(self, frame: bytes, behind: socket.socket, node: int) -> bytes:
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        leads = node == self.leader
        if key == ApiKey.PRODUCE and not leads:
            return _refused(frame, version)  # it must not reach the broker
        behind.sendall(len(frame).to_bytes(4, "big") + frame)
        reply = receive_frame(behind)
        self._count(node, key)
        if key == ApiKey.METADATA and len(self.ports) > 1:
            return self._with_nodes(reply, version)
        if key == ApiKey.FETCH and not leads:
            return _without_records(reply, version)
        return reply

    def _count(self, node: int, key: int) -> None:
        with self._lock:
            self.asked[node, key] += 1
            count = sum(self.asked[each, key] for each in range(len(self.ports)))
            action = self._actions.get((key, count))
        if action is not None:
            action()
            with self._lock:
                self._actions.pop((key, count), None)

    def _with_nodes(self, reply: bytes, version: int) -> bytes:
        metadata = cast("Any", decode_response(reply, ApiKey.METADATA, version))
        metadata.brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
            for node, port in enumerate(self.ports)
        ]
        for partition in (row for topic in metadata.topics for row in topic.partitions):
            partition.leader_id = self.leader
            partition.replica_nodes = partition.isr_nodes = list(range(len(self.ports)))
        return encode_response(int.from_bytes(reply[:4], "big"), metadata, version)[4:]


def _without_records(reply: bytes, version: int) -> bytes:
    fetched = cast("Any", decode_response(reply, ApiKey.FETCH, version))
    for row in (row for topic in fetched.responses for row in topic.partitions):
        row.error_code, row.records = ErrorCode.NOT_LEADER_OR_FOLLOWER.value, None
    return encode_response(int.from_bytes(reply[:4], "big"), fetched, version)[4:]


def _refused(frame: bytes, version: int) -> bytes:
    header, request = cast("tuple[Any, Any]", decode_request(frame))
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER.value
    rows = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=row.index, error_code=code)
                for row in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return encode_response(header.correlation_id, ProduceResponse(responses=rows), version)[4:]
