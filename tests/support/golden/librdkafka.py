"""Golden batches of librdkafka (confluent-kafka): a tiny server receives and keeps its Produces.

The server knows ApiVersions, Metadata and Produce in the few versions that it offers, and one topic
with one partition: just enough to make librdkafka send batches.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from tests.support.golden.cases import CODECS, Golden, sample

_TOPIC = "golden"
_PRODUCE, _METADATA, _API_VERSIONS = 0, 3, 18
_UNSUPPORTED_VERSION = 35
# Key, first and last version. librdkafka chooses the format by Produce (2: v1, 3: v2) and Fetch;
# lz4 needs FindCoordinator, zstd needs Produce 7 and Fetch 10.
_OTHERS = ((2, 0, 1), (3, 0, 1), (10, 0, 0), (18, 0, 0))
_RANGES = {
    1: ((0, 0, 2), (1, 0, 2), *_OTHERS),
    2: ((0, 0, 7), (1, 0, 11), *_OTHERS),
}
# For format v0 librdkafka must not send ApiVersions, but rely on the configured broker version.
_V0_SETTINGS = {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}


def librdkafka_goldens() -> Iterator[Golden]:
    import confluent_kafka

    release = f"confluent-kafka {confluent_kafka.__version__}, librdkafka "
    release += confluent_kafka.libversion()[0]
    for magic, codec in product((0, 1, 2), CODECS):
        if magic < 2 and codec == "zstd":
            continue
        with CaptureServer(_RANGES.get(magic, ())) as server:
            _produce(server.port, magic, codec)
        if len(server.sets) != 1:
            raise RuntimeError(f"{len(server.sets)} sets for v{magic} {codec}, expected one")
        data = server.sets[0]
        if data[16] != magic:
            raise RuntimeError(f"librdkafka wrote format {data[16]}, wanted {magic}")
        yield Golden(f"librdkafka-v{magic}-{codec}", release, codec, data, sample(magic))


def _produce(port: int, magic: int, codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "broker.address.family": "v4",
            "compression.codec": codec,
            "linger.ms": 300,
            "log_level": 3,
            "message.timeout.ms": 20_000,
            "request.required.acks": 1,
            **(_V0_SETTINGS if magic == 0 else {}),
        }
    )
    for record in sample(magic):
        producer.produce(
            _TOPIC,
            key=record.key,
            value=record.value,
            partition=0,
            timestamp=max(record.timestamp_ms, 0),
            headers=list(record.headers),
        )
    if producer.flush(20):
        raise RuntimeError(f"librdkafka could not send v{magic} {codec}")


class CaptureServer:
    """Serves a free port of 127.0.0.1 in threads; ``sets`` holds what was produced."""

    def __init__(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        self._ranges = ranges
        self.sets: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "CaptureServer":
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            while True:
                try:
                    size = reader.read(4)
                    frame = reader.read(int.from_bytes(size, "big")) if len(size) == 4 else b""
                    if not frame:
                        return
                    reply = self._reply(frame)
                    connection.sendall(struct.pack(">i", len(reply)) + reply)
                except OSError:
                    return

    def _reply(self, frame: bytes) -> bytes:
        key, version, correlation_id, client_id_size = struct.unpack_from(">hhih", frame)
        body = frame[10 + max(client_id_size, 0) :]
        head = struct.pack(">i", correlation_id)
        if key == _API_VERSIONS:
            error = 0 if version == 0 else _UNSUPPORTED_VERSION
            rows = b"".join(struct.pack(">hhh", *row) for row in self._ranges)
            return head + struct.pack(">hi", error, len(self._ranges)) + rows
        if key == _METADATA:
            return head + self._metadata(version)
        if key == _PRODUCE:
            return head + self._take(version, body)
        raise RuntimeError(f"librdkafka asked for key {key}, version {version}")

    def _metadata(self, version: int) -> bytes:
        broker = struct.pack(">ii", 1, 1) + _string("127.0.0.1") + struct.pack(">i", self.port)
        if version >= 1:
            broker += struct.pack(">hi", -1, 1)  # rack: null; then the controller's id
        topic = struct.pack(">ih", 1, 0) + _string(_TOPIC) + (b"\0" if version >= 1 else b"")
        # One partition: error, number, leader, replicas [1], in sync [1].
        return broker + topic + struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)

    def _take(self, version: int, body: bytes) -> bytes:
        position = 0
        if version >= 3:  # the transactional id, a nullable string
            position = 2 + max(struct.unpack_from(">h", body)[0], 0)
        position += 6 + 4  # acks, timeout; one topic
        position += 2 + struct.unpack_from(">h", body, position)[0]
        position += 4 + 4  # one partition; its number
        size = struct.unpack_from(">i", body, position)[0]
        self.sets.append(body[position + 4 : position + 4 + size])
        partition = struct.pack(">ihq", 0, 0, 0)
        if version >= 2:
            partition += struct.pack(">q", -1)  # log append time
        if version >= 5:
            partition += struct.pack(">q", 0)  # log start offset
        throttle = struct.pack(">i", 0) if version >= 1 else b""
        one = struct.pack(">i", 1)
        return one + _string(_TOPIC) + one + partition + throttle


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
