"""A loop without a machine below it: a scripted poller, and streams that live in memory."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from klog_broker.runtime.net.poller import BROKEN, READABLE, WRITABLE
from klog_broker.runtime.net.socket_calls import ARENA_FULL, SocketCalls

IOV_MAX = 1024
"""Number of buffers that one call of Linux takes at most."""


class ScriptedPoller:
    """Says that what the test put into ``ready`` is ready, and notes for how long it would wait."""

    def __init__(self) -> None:
        self.ready: list[tuple[int, int]] = []
        self.timeouts_ms: list[int | None] = []
        self.interest: dict[int, int] = {}
        self.woken = threading.Event()

    def register(self, fd: int, interest: int) -> None:
        assert fd not in self.interest
        self.interest[fd] = interest

    def modify(self, fd: int, interest: int) -> None:
        assert fd in self.interest
        self.interest[fd] = interest

    def unregister(self, fd: int) -> None:
        del self.interest[fd]

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        self.timeouts_ms.append(timeout_ms)
        ready, self.ready = self.ready, []
        return ready

    def wake(self) -> None:
        self.woken.set()

    def close(self) -> None:
        pass


class MemoryStream(ABC):
    """One side's view of a connection: ``inbox`` is what it can receive."""

    def __init__(self, fd: int, address: tuple[str, int]) -> None:
        self._fd = fd
        self._address = address
        self.is_plain = True
        self.inbox = bytearray()
        self.receives = 0
        self.sends = 0
        self.sends_more = 0
        self.is_at_end = False
        self.is_broken = False
        self.is_closed = False
        self.failed_connect: OSError | None = None

    def fileno(self) -> int:
        return self._fd

    def connect_error(self) -> OSError | None:
        return self.failed_connect

    def recv_into(self, buffer: memoryview) -> int:
        assert not self.is_closed
        self.receives += 1
        if self.is_broken:
            raise ConnectionResetError("reset by peer")
        if not self.inbox:
            if self.is_at_end:
                return 0
            raise BlockingIOError
        count = min(len(buffer), len(self.inbox))
        buffer[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    @abstractmethod
    def _take(self, data: bytes) -> int:
        """How many bytes are sent of the data; BlockingIOError if there is no room."""

    def _room_for(self, data: bytes, room_bytes: int) -> int:
        """How many bytes of the data fit, as send has it."""
        assert not self.is_closed
        if self.is_broken:
            raise BrokenPipeError("broken pipe")
        self.sends += 1
        count = min(len(data), room_bytes)
        if data and not count:
            raise BlockingIOError
        return count

    def send(self, parts: list[Any]) -> int:
        assert len(parts) <= IOV_MAX
        return self._take(b"".join(parts))

    def send_more(self, parts: list[Any]) -> int:
        self.sends_more += 1
        return self.send(parts)

    def send_file(self, file: Any, position: int, size_bytes: int) -> int:
        return self._take(file.pread(size_bytes, position))

    def close(self) -> None:
        self.is_closed = True

    def remote_address(self) -> tuple[str, int]:
        return self._address

    def local_address(self) -> tuple[str, int]:
        return "10.0.0.9", 9092


class FakeStream(MemoryStream):
    """The broker's: ``sent`` is what it has sent. ``room_bytes`` is what the peer's window takes
    before sending blocks."""

    def __init__(self, fd: int, address: str = "10.0.0.1") -> None:
        super().__init__(fd, (address, 40_000 + fd))
        self.sent = bytearray()
        self.room_bytes = 1 << 30

    def _take(self, data: bytes) -> int:
        count = self._room_for(data, self.room_bytes)
        self.room_bytes -= count
        self.sent += data[:count]
        return count


class FakeListener:
    """Connections that wait to be accepted."""

    def __init__(self, fd: int, host: str, port: int) -> None:
        self._fd = fd
        self._address = (host, port)
        self.waiting: list[FakeStream | OSError] = []
        self.is_closed = False

    def fileno(self) -> int:
        return self._fd

    def accept(self) -> FakeStream:
        if not self.waiting:
            raise BlockingIOError
        found = self.waiting.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    def address(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self.is_closed = True


class FakeNetwork:
    """Listeners and streams, and the poller that knows which of them are ready."""

    def __init__(self) -> None:
        self._next_fd = 10
        self.listeners: list[FakeListener] = []
        self.streams: dict[int, FakeStream] = {}
        self.poller = NetworkPoller(self)
        self.has_socket_calls = True
        # How many times SocketCalls was to receive from or send to a stream.
        self.received_at_once = 0
        self.sent_at_once = 0

    def socket_calls(self, arena: memoryview, responses: memoryview) -> SocketCalls | None:
        return FakeSocketCalls(self, arena, responses) if self.has_socket_calls else None

    def listen(self, host: str, port: int, backlog: int) -> FakeListener:
        self._next_fd += 1
        listener = FakeListener(self._next_fd, host, port or 50_000)
        self.listeners.append(listener)
        return listener

    def connect(self, host: str, port: int, from_address: str | None = None) -> FakeStream:
        return self._stream(host)

    def look_up(self, host: str) -> str:
        raise OSError(f"{host} has no address here")

    def arrive(self, address: str = "10.0.0.1", listener: int = 0) -> FakeStream:
        """A connection that waits at the first listener, or at another one."""
        stream = self._stream(address)
        self.listeners[listener].waiting.append(stream)
        return stream

    def _stream(self, address: str) -> FakeStream:
        self._next_fd += 1
        stream = self.streams[self._next_fd] = FakeStream(self._next_fd, address)
        return stream


class FakeSocketCalls:
    """runtime/net/socket_kernel.py's calls, on streams in memory."""

    def __init__(self, network: FakeNetwork, arena: memoryview, responses: memoryview) -> None:
        self._network = network
        self._arena = arena
        self._responses = responses

    def receive(
        self, descriptors: Sequence[int], start: int, share_bytes: int, least_bytes: int
    ) -> list[int]:
        counts = []
        for fd in descriptors:
            room = min(share_bytes, len(self._arena) - start)
            if room < least_bytes:
                counts.append(ARENA_FULL)
                continue
            try:
                count = self._network.streams[fd].recv_into(self._arena[start : start + room])
            except OSError:
                count = -1
            counts.append(count)
            start += max(count, 0)
        self._network.received_at_once += len(counts)
        return counts

    def send(
        self, descriptors: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        counts = []
        for fd, start, size in zip(descriptors, starts, sizes, strict=True):
            try:
                counts.append(
                    self._network.streams[fd].send([self._responses[start : start + size]])
                )
            except OSError:
                counts.append(-1)
        self._network.sent_at_once += len(counts)
        return counts


class NetworkPoller(ScriptedPoller):
    """Level-triggered, from the state of the streams."""

    def __init__(self, network: FakeNetwork) -> None:
        super().__init__()
        self._network = network

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        self.timeouts_ms.append(timeout_ms)
        ready = [
            (listener.fileno(), READABLE)
            for listener in self._network.listeners
            if listener.waiting and self.interest.get(listener.fileno(), 0) & READABLE
        ]
        for fd, interest in self.interest.items():
            stream = self._network.streams.get(fd)
            if stream is None:
                continue
            events = 0
            if stream.inbox or stream.is_at_end or stream.is_broken:
                events |= interest & READABLE
            if stream.room_bytes > 0 or stream.is_broken:
                events |= interest & WRITABLE
            if stream.is_broken:
                events |= BROKEN
            if events:
                ready.append((fd, events))
        return ready
