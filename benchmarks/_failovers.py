"""Times of events in a cluster: acks, the deletion of a znode, a partition that serves again."""

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from threading import Event, Thread

from kazoo.client import KazooClient

from benchmarks._clusters import ClusterSide, latest_offsets
from benchmarks._load.frames import CLIENT_ID, errors_in, one_batch, produce_frame
from benchmarks._load.jobs import LoadFailed, Messages, Target
from pyspark_klog.client.cluster.metadata import ClusterView, metadata_request
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.list_offsets import ListOffsetsResponse
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from pyspark_klog.protocol.apis.produce import ProduceResponse
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

METADATA_VERSION = 9
_LIST_OFFSETS_VERSION = 5
_PAUSE_S = 0.005
_CONNECT_S = 2.0
_REPLY_S = 60.0
_ACKS_ALL = -1


class Asker:
    """One connection with one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), _CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(_REPLY_S)
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def call_broker(self, request: Request, version: int) -> Response:
        api_key = ApiKey(type(request).api_key)
        header = RequestHeader(api_key, version, 0, CLIENT_ID)
        return decode_response(self.send(encode_request(header, request)), api_key, version)

    def send(self, frame: bytes) -> bytes:
        """Send a whole frame; return the response without its size."""
        self._socket.sendall(frame)
        size = self._stream.read(4)
        reply = self._stream.read(int.from_bytes(size, "big")) if len(size) == 4 else b""
        if not reply:
            raise ConnectionError("the broker closed the connection")
        return reply


class Acks:
    """A producer of one record after the other, acks=all, at the leader of a partition.

    The broker ``ask``, which must stay up, is asked for the leader. ``at_s`` are the monotonic
    times of the acks.
    """

    def __init__(self, side: ClusterSide, topic: str, number: int, version: int, ask: int) -> None:
        self.at_s: list[float] = []
        self.refused = 0
        self._topic, self._number, self._version = topic, number, version
        target: Target = side.target(topic, number)
        batch = one_batch(Messages(1))
        self._frame = produce_frame(target, version, _ACKS_ALL, 0, batch)
        self._view = Asker(*side.address(ask))
        self._leader: Asker | None = None
        self._error: Exception | None = None
        self._is_over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop_producing(self) -> None:
        self._is_over.set()
        self._thread.join()
        for asker in (self._leader, self._view):
            if asker is not None:
                asker.close()
        if self._error is not None:
            raise LoadFailed(f"producing through it: {self._error!r}")

    def first_after(self, moment_s: float) -> float:
        """The time of the first ack after a moment; LoadFailed if there is none yet."""
        for each in self.at_s:
            if each > moment_s:
                return each
        raise LoadFailed("no ack came after it")

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                if not self._produce():
                    self.refused += 1
                    time.sleep(_PAUSE_S)
        except (OSError, KlogError) as error:
            self._error = error

    def _produce(self) -> bool:
        leader = self._leader or self._find_leader()
        if leader is None:
            return False
        self._leader = None
        try:
            reply = leader.send(self._frame)
        except OSError:
            leader.close()
            return False
        answer = decode_response(reply, ApiKey(ProduceResponse.api_key), self._version)
        if errors_in(answer):
            leader.close()
            return False
        self.at_s.append(time.monotonic())
        self._leader = leader
        return True

    def _find_leader(self) -> Asker | None:
        request = metadata_request([self._topic], METADATA_VERSION, False)
        reply = self._view.call_broker(request, METADATA_VERSION)
        assert isinstance(reply, MetadataResponse)
        view = ClusterView.of(reply)
        topic = view.topics.get(self._topic)
        info = topic.partitions.get(self._number) if topic else None
        address = view.brokers.get(info.leader) if info else None
        if address is None:
            return None
        with suppress(OSError):
            return Asker(*address)
        return None


def longest_gap(times_s: Sequence[float], since_s: float) -> tuple[float, float]:
    """The longest time without an ack since a moment, as (from, to)."""
    gaps = [
        (later - earlier, earlier, later)
        for earlier, later in pairwise(times_s)
        if earlier >= since_s
    ]
    if not gaps:
        raise LoadFailed("too few acks came to tell of gaps")
    return max(gaps)[1:]


@contextmanager
def acks(side: ClusterSide, topic: str, number: int, version: int, ask: int) -> Iterator[Acks]:
    """A producer that runs for the with statement."""
    found = Acks(side, topic, number, version, ask)
    try:
        yield found
    finally:
        found.stop_producing()


class Gone:
    """Watches a znode from the creation of this object on, until it is deleted."""

    def __init__(self, zookeeper: KazooClient, path: str) -> None:
        self._path = path
        self._at_s = 0.0
        self._is_gone = Event()
        if zookeeper.exists(path, watch=self._changed) is None:
            raise LoadFailed(f"there is no znode {path}")

    def wait_s(self, deadline_s: float) -> float:
        """When the znode was deleted; LoadFailed if it still exists."""
        if not self._is_gone.wait(deadline_s):
            raise LoadFailed(f"the znode {self._path} is still there after {deadline_s:g} s")
        return self._at_s

    def _changed(self, _: object) -> None:
        self._at_s = time.monotonic()
        self._is_gone.set()


def wait_until_served(
    side: ClusterSide, topic: str, numbers: Sequence[int], ask: Sequence[int], deadline_s: float
) -> float:
    """Wait until each of these partitions has answered ListOffsets, which only a leader does.

    The requests go to the brokers ``ask``. Return the monotonic time of the last answer.
    """
    askers = [Asker(*side.address(each)) for each in ask]
    pending = set(numbers)
    end_s = time.monotonic() + deadline_s
    try:
        while True:
            for asker in askers:
                pending -= _served(asker, topic, sorted(pending))
                if not pending:
                    return time.monotonic()
            if time.monotonic() > end_s:
                raise LoadFailed(f"{len(pending)} partitions of {topic} are not served")
            time.sleep(_PAUSE_S)
    finally:
        for asker in askers:
            asker.close()


def _served(asker: Asker, topic: str, numbers: list[int]) -> set[int]:
    reply = asker.call_broker(latest_offsets(topic, numbers), _LIST_OFFSETS_VERSION)
    assert isinstance(reply, ListOffsetsResponse)
    rows = reply.topics[0].partitions
    return {row.partition_index for row in rows if row.error_code == 0}
