"""A broker in memory that is fed bytes, and the checks of its behaviour."""

from __future__ import annotations

from functools import cache
from random import Random
from uuid import UUID

from klog_broker.api.families import SERVED
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request
from pyspark_klog.protocol.registry import find_api
from tests.fuzz.corpus import likely
from tests.fuzz.target import BrokenPromise
from tests.support.cluster.broker import TOPICS, MemoryBroker, new_broker, topic_ids
from tests.support.raw_requests import batch, fetch_request, produce_request
from tests.support.runtime.fake_network import FakeStream

NAMES = ("plain", "plain", "compacted", "none", "__consumer_offsets")


@cache
def ids() -> tuple[UUID, ...]:
    """The ids of two existing topics, and of one that does not exist."""
    return (topic_ids()["plain"], topic_ids()["compacted"], UUID(int=5))


@cache
def served_versions() -> list[tuple[ApiKey, int]]:
    """Every served version of every API, as (API key, version)."""
    found = []
    for handler in SERVED:
        cls = find_api(handler.api_key).request
        first = cls.min_version if handler.min_version is None else handler.min_version
        last = cls.max_version if handler.max_version is None else handler.max_version
        found += [(handler.api_key, version) for version in range(first, last + 1)]
    return found


def likely_request(random: Random) -> tuple[ApiKey, int, bytes]:
    """A request that a client could mean: API key, version and frame."""
    key, version = random.choice(served_versions())
    cls = find_api(key).request
    message: Request = likely(cls, version, cls.is_flexible(version), random, NAMES, ids())
    header = RequestHeader(key, version, random.randrange(100), random.choice((None, "c")))
    return key, version, encode_request(header, message)


class FedBroker:
    """Takes streams of bytes, one connection after the other."""

    def __init__(self) -> None:
        self.memory: MemoryBroker = new_broker(with_kernel=True)
        self._fed = 0

    def feed(self, data: bytes, step: int) -> FakeStream:
        """Send bytes on a new connection, which then ends; return its stream.

        Raises BrokenPromise after a bug, or if the broker does not close the connection. Now and
        then another client's records are written and read, too.
        """
        memory = self.memory
        stream = memory.connect()
        for start in range(0, len(data), step):
            if stream.is_closed:
                break
            stream.inbox += data[start : start + step]
            memory.turns()
        # Delayed operations reach their timeout.
        memory.pass_time(250)
        if not stream.is_closed:
            stream.is_at_end = True
            memory.turns()
            if not stream.is_closed:
                raise BrokenPromise("the client is gone, and its connection is not closed")
        self._check()
        memory.network.streams.pop(stream.fileno())
        return stream

    def _check(self) -> None:
        bugs = self.memory.broker.services.requests.bugs
        if bugs.total:
            raise BrokenPromise(f"bugs: {dict(bugs.counts)}")
        self._fed += 1
        if self._fed % 50 == 0:
            self.records_flow()

    def records_flow(self) -> None:
        """Write a record as another client, and read it."""
        written = self.memory.call(produce_request("flushed", batch(b"value")), 9)
        answer = written.responses[0].partition_responses[0]
        if answer.error_code:
            raise BrokenPromise(f"another client's Produce is answered with {answer}")
        request = fetch_request("flushed", answer.base_offset)
        read = self.memory.call(request, 12).responses[0].partitions[0]
        if read.error_code or read.high_watermark != answer.base_offset + 1:
            raise BrokenPromise(f"another client's Fetch is answered with {read}")


def frames_of(sent: bytes) -> list[bytes]:
    """The frames of the sent responses, without their sizes."""
    found, position = [], 0
    while position < len(sent):
        size = int.from_bytes(sent[position : position + 4], "big", signed=True)
        if size < 4 or position + 4 + size > len(sent):
            raise BrokenPromise(f"an answer of {size} bytes, {len(sent) - position} were sent")
        found.append(sent[position + 4 : position + 4 + size])
        position += 4 + size
    return found


assert set(NAMES) - {"none", "__consumer_offsets"} <= set(TOPICS)
