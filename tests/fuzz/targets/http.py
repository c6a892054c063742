"""Bytes to the HTTP port of metrics: damaged and senseless requests of slow or leaving clients.

The first byte of an input chooses the size of the pieces, the second how the client takes its
responses; the rest is sent. The loop raises no exception, and the broker counts no bug. Each
request gets one whole response, in order, however it was cut, and no response follows one that
closes. A long head is refused, a silent connection ends in time, and other clients get responses.
"""

from __future__ import annotations

import re
from random import Random

from klog_broker.monitoring.connection import ANSWER_MS, IDLE_MS, RECEIVE_BYTES
from klog_broker.monitoring.http_reader import (
    MAX_HEAD_BYTES,
    BadRequest,
    HttpReader,
    HttpRequest,
)
from klog_broker.runtime.net.poller import WRITABLE
from tests.fuzz.mutating import mutated
from tests.fuzz.target import BrokenPromise, Target
from tests.support.cluster.broker import MemoryBroker
from tests.support.runtime.fake_network import FakeStream
from tests.support.runtime.memory_files import MemoryFiles

_STEPS = (1 << 20, 1 << 20, RECEIVE_BYTES, 300, 7, 1)
_TAKES_ALL, _TAKES_LITTLE, _TAKES_NOTHING, _LEAVES = range(4)
_LITTLE_BYTES = 100
_MOST_PIECES = 100
"""An input that would have more pieces is sent in fewer, larger ones."""
_MOST_TURNS = 10_000
_ANSWER = re.compile(
    rb"HTTP/1\.1 (\d{3}) [ A-Za-z]+\r\n"
    rb"Content-Type: [^\r\n]+\r\nContent-Length: (\d+)\r\n"
    rb"Connection: (keep-alive|close)\r\n(?:Allow: GET, HEAD\r\n)?\r\n"
)
_SOUND = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
_MOST_HEAD_BYTES = 300
_FIXED_BYTES = 8 << 20
_MOST_BYTES_A_BYTE = 200

_METHODS = (b"GET", b"GET", b"GET", b"HEAD", b"POST", b"get", b"", b"G\x00T", b"PRI")
_TARGETS = (
    b"/metrics",
    b"/health",
    b"/ready",
    b"/",
    b"/metrics?name[]=a",
    b"*",
    b"http://a/metrics",
    b"/" + b"a" * 9_000,
    b"/%00",
    b"/\xc3\xa4",
)
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.9", b"")
_HEADERS = (
    b"Host: a",
    b"Host: a",
    b"host:",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Connection: x,\tCLOSE ,",
    b"Content-Length: 0",
    b"Content-Length: 5",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Expect: 100-continue",
    b"Accept: */*",
    b" folded",
    b"no colon",
    b": no name",
    b"Space : before",
    b"Upgrade: h2c",
)
_ENDS = (b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n\r\n")


class Http(Target):
    """Feeds damaged HTTP requests to the port of metrics."""

    name = "http"
    block = 500

    def renew(self) -> None:
        self._memory = MemoryBroker(
            MemoryFiles(), with_kernel=False, metrics_listener="127.0.0.1:9404"
        )
        self._fed = 0

    def make(self, random: Random) -> bytes:
        sent = b"".join(_request(random) for _ in range(random.choice((1, 1, 1, 2, 3, 8))))
        if random.random() < 0.02:
            sent *= random.choice((20, 100))
        if random.random() < 0.7:
            sent = mutated(sent, random, (_SOUND,))
        return bytes((random.randrange(len(_STEPS)), random.randrange(4))) + sent

    def check(self, data: bytes) -> None:
        step = _STEPS[(data[0] if data else 0) % len(_STEPS)]
        takes = (data[1] if len(data) > 1 else 0) % 4
        stream = self._connect()
        self._feed(stream, data[2:], step, takes)
        _check_answers(bytes(stream.sent), _requests_of(data[2:]), is_all=takes <= _TAKES_LITTLE)
        head = data[2:].lstrip(b"\r\n")
        if takes == _TAKES_ALL and not stream.sent and len(head) >= MAX_HEAD_BYTES:
            raise BrokenPromise(f"{len(head)} bytes are taken for the beginning of a request")
        self._memory.network.streams.pop(stream.fileno())
        bugs = self._memory.broker.services.requests.bugs
        if bugs.total:
            raise BrokenPromise(f"bugs: {dict(bugs.counts)}")
        self._fed += 1
        if self._fed % 20 == 0:
            self._others_are_answered()

    def _connect(self) -> FakeStream:
        stream = self._memory.network.arrive(listener=-1)
        self._memory.turns()
        return stream

    def _feed(self, stream: FakeStream, sent: bytes, step: int, takes: int) -> None:
        """Send the input in pieces, and let time pass until the connection must be closed."""
        memory = self._memory
        if takes != _TAKES_ALL:
            stream.room_bytes = 0
        step = max(step, len(sent) // _MOST_PIECES)
        for start in range(0, len(sent), step):
            if stream.is_closed:
                break
            stream.inbox += sent[start : start + step]
            memory.broker.loop.run_turn(0)
            if takes == _TAKES_LITTLE:
                stream.room_bytes += _LITTLE_BYTES
        if takes == _LEAVES:
            stream.is_at_end = True
        if takes != _TAKES_NOTHING:
            stream.room_bytes = 1 << 30
        self._rest(stream)
        for silent_ms in (ANSWER_MS, IDLE_MS):
            memory.clock.advance(silent_ms)
            memory.broker.loop.run_turn(0)
            self._rest(stream)
        if not stream.is_closed:
            raise BrokenPromise(f"still open after {ANSWER_MS + IDLE_MS} ms of silence")

    def _rest(self, stream: FakeStream) -> None:
        """Run turns until no work is left, or no byte can be sent."""
        memory = self._memory
        for _ in range(_MOST_TURNS):
            memory.turns()
            interest = memory.network.poller.interest.get(stream.fileno(), 0)
            if not (stream.room_bytes and interest & WRITABLE):
                return
            memory.broker.loop.run_turn(0)
        raise BrokenPromise("the connection does not come to rest")

    def _others_are_answered(self) -> None:
        stream = self._connect()
        self._feed(stream, _SOUND, len(_SOUND), _TAKES_ALL)
        if b'"state": "ready"' not in stream.sent:
            raise BrokenPromise(f"another client is answered with {bytes(stream.sent)!r}")
        self._memory.network.streams.pop(stream.fileno())

    def most_bytes(self, data: bytes) -> int:
        return _FIXED_BYTES + _MOST_BYTES_A_BYTE * len(data)


def _request(random: Random) -> bytes:
    line = b" ".join(random.choice(each) for each in (_METHODS, _TARGETS, _VERSIONS))
    rows = [line, *random.choices(_HEADERS, k=random.choice((1, 1, 2, 3, 6)))]
    if random.random() < 0.02:
        filling = random.choice((b" ", b"\t ", b"a", b"\xff", b",", b"a:b\r\n", b"\r\n"))
        rows.append(b"X: " + filling * random.choice((100, 4_000, 9_000)))
    if random.random() < 0.02:
        rows.insert(0, b"\r\n" * random.choice((0, 1, 3_000)))
    end = random.choice(_ENDS)
    return end.join((*rows, b"", random.choice((b"", b"", b"", b"body"))))


def _requests_of(sent: bytes) -> list[HttpRequest | BadRequest]:
    """The requests that the reader finds when it gets all bytes at once."""
    reader = HttpReader()
    reader.feed(sent)
    return list(iter(reader.next, None))


def _check_answers(sent: bytes, requests: list[HttpRequest | BadRequest], *, is_all: bool) -> None:
    """Check that the sent bytes are the responses of these requests.

    Unless ``is_all``, the client may have taken only the first ones, and a part of the last.
    """
    position = 0
    for request in requests:
        match = _ANSWER.match(sent, position)
        if match is None:
            if is_all or len(sent) - position > _MOST_HEAD_BYTES:
                raise BrokenPromise(f"no answer to {request}: {sent[position:][:200]!r}")
            return
        status, size, connection = int(match[1]), int(match[2]), match[3]
        keeps = isinstance(request, HttpRequest) and request.keeps_alive
        if keeps != (connection == b"keep-alive") or status not in _statuses_of(request):
            raise BrokenPromise(f"{request} is answered with {match[0]!r}")
        if isinstance(request, BadRequest) or not request.is_head:
            position = match.end() + size
        else:
            position = match.end()
        if position > len(sent):
            if is_all:
                raise BrokenPromise(f"the answer to {request} is not whole")
            return
    if position != len(sent):
        raise BrokenPromise(f"nobody asked for {sent[position:][:200]!r}")


def _statuses_of(request: HttpRequest | BadRequest) -> tuple[int, ...]:
    if isinstance(request, BadRequest):
        return (request.status,)
    return (200,) if request.path in ("/metrics", "/health", "/ready") else (404,)


TARGET = Http
