"""A steady load of small requests until its end: a Produce, and a Fetch of the record it wrote.

The load has a process of its own. A request that was sent late, because the one before had no
response, counts from its due time: a pause of the broker affects all requests that were due in it.
"""

import json
import socket
import sys
import time
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import Any

from benchmarks._load.frames import errors_in, fetch_frame, one_batch, produce_frame, reply_shape
from benchmarks._load.jobs import FetchAll, LoadFailed, Messages, PipelinedProduce, Target
from benchmarks._load.pipe import Child
from benchmarks._load.running import connect
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.layout import BASE_OFFSET_AT

_TIMEOUT_S = 60.0
_MESSAGES = Messages(1)
_CHUNK_BYTES = 65_536
_OFFSET_BYTES = 8


@dataclass(frozen=True)
class Steady:
    """``pairs_per_s`` Produces (acks=1, one message of 200 bytes) a second, and as many Fetches.

    The target is an empty partition.
    """

    target: Target
    produce_version: int
    fetch_version: int
    pairs_per_s: float


@dataclass(frozen=True)
class Samples:
    """When each request was due (monotonic seconds), and its time to the response in us."""

    due_s: list[float]
    produce_us: list[float]
    fetch_us: list[float]


class SteadyLoad(Child):
    """The process of the load."""

    def __init__(self) -> None:
        super().__init__("benchmarks._load.steady")

    def start_load(self, steady: Steady) -> None:
        """Begin the load; it continues until ``stop_load``."""
        self.send_line(json.dumps(asdict(steady)), _TIMEOUT_S)

    def stop_load(self) -> Samples:
        """End the load; LoadFailed if it had ended by itself."""
        return Samples(**self.send_line("null", _TIMEOUT_S))


class _Pairs:
    """The load, in a thread of its own."""

    def __init__(self, steady: Steady) -> None:
        self.samples = Samples([], [], [])
        self.error: Exception | None = None
        self._steady = steady
        self._is_over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop_sending(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with connect(self._steady.target) as sock:
                self._send_pairs(sock)
        except (LoadFailed, OSError) as error:
            self.error = error

    def _send_pairs(self, sock: socket.socket) -> None:
        steady, samples = self._steady, self.samples
        produce, fetch = _Produce(steady), _Fetch(steady)
        half_s = 0.5 / steady.pairs_per_s
        due_s = answered_s = time.monotonic()
        offset = 0
        while not self._is_over.is_set():
            samples.due_s.append(due_s)
            for kind, found_us in ((produce, samples.produce_us), (fetch, samples.fetch_us)):
                wait_s = due_s - time.monotonic()
                if wait_s > 0:
                    time.sleep(wait_s)
                began_s = due_s if answered_s > due_s else time.monotonic()
                sock.sendall(kind.request(offset))
                reply = _receive(sock)
                answered_s = time.monotonic()
                found_us.append((answered_s - began_s) * 1e6)
                kind.check(reply, offset)
                due_s += half_s
            offset += 1


class _Produce:
    def __init__(self, steady: Steady) -> None:
        target, version = steady.target, steady.produce_version
        self._frame = produce_frame(target, version, 1, 0, one_batch(_MESSAGES))
        self._shape = reply_shape(PipelinedProduce(target, version, 1, 1, _MESSAGES))

    def request(self, _: int) -> bytes:
        return self._frame

    def check(self, reply: bytes, offset: int) -> None:
        at = self._shape.offset_at
        found = int.from_bytes(reply[at : at + _OFFSET_BYTES], "big", signed=True)
        if len(reply) != self._shape.size_bytes or found != offset:
            raise LoadFailed(f"Produce: offset {found}, expected {offset}: {reply.hex()}")


class _Fetch:
    def __init__(self, steady: Steady) -> None:
        self._version = steady.fetch_version
        job = FetchAll(steady.target, self._version, _CHUNK_BYTES, 1)
        self._frame, self._offset_at = fetch_frame(job)
        self._batch_at = -1
        self._size = 0

    def request(self, offset: int) -> bytes:
        end = self._offset_at + _OFFSET_BYTES
        self._frame[self._offset_at : end] = offset.to_bytes(_OFFSET_BYTES, "big")
        return bytes(self._frame)

    def check(self, reply: bytes, offset: int) -> None:
        if self._batch_at < 0:
            self._look_at_first(reply)
        at = self._batch_at + BASE_OFFSET_AT
        found = int.from_bytes(reply[at : at + _OFFSET_BYTES], "big", signed=True)
        if len(reply) != self._size or found != offset:
            raise LoadFailed(f"Fetch: offset {found}, expected {offset}: {reply.hex()}")

    def _look_at_first(self, reply: bytes) -> None:
        """Decode the first response; later ones must have its size, and their own offset."""
        response = decode_response(reply[4:], ApiKey.FETCH, self._version)
        records = response.responses[0].partitions[0].records  # type: ignore[attr-defined]
        errors = errors_in(response)
        if errors or not records:
            raise LoadFailed(f"Fetch: error codes {errors}: {response!r}")
        self._batch_at = reply.index(bytes(records))
        self._size = len(reply)


def _receive(sock: socket.socket) -> bytes:
    """One response, with its size before it."""
    reply = sock.recv(_CHUNK_BYTES)
    while reply:
        if len(reply) >= 4 and len(reply) >= 4 + int.from_bytes(reply[:4], "big"):
            return reply
        more = sock.recv(_CHUNK_BYTES)
        if not more:
            break
        reply += more
    raise LoadFailed("the broker closed the connection")


def main() -> int:
    """Begin a load at a line with its settings, end it at null, until stdin ends."""
    pairs: _Pairs | None = None
    for line in sys.stdin:
        fields = json.loads(line)
        answer: dict[str, Any] = {"measured": {}}
        if fields is not None:
            target = Target(**fields.pop("target"))
            pairs = _Pairs(Steady(target, **fields))
        elif pairs is not None:
            pairs.stop_sending()
            answer = {"measured": asdict(pairs.samples)}
            if pairs.error is not None:
                answer = {"error": f"{type(pairs.error).__name__}: {pairs.error}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
