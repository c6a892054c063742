"""A network in memory whose connections are slow, split data into pieces, stall and break.

Bytes of one direction of a connection stay in order; all other events may overtake each other.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

from klog_broker.runtime.net.socket_calls import SocketCalls
from tests.simulation.connection_faults import OpenRoads, Roads
from tests.simulation.outbound import Outbound
from tests.simulation.poller import SimPoller
from tests.simulation.world import World
from tests.support.runtime.fake_network import FakeSocketCalls, MemoryStream

LONGEST_DELAY_MS = 120
_SMALL_WINDOWS = (20_000, 3_000)


class Peer(Protocol):
    """The client's side of a connection: the network reports events to these methods."""

    def connected(self) -> None: ...

    def received(self, data: bytes) -> None: ...

    def closed(self, why: str) -> None: ...


class _Pipe:
    """One direction of a connection: pieces under way, then perhaps its end (None)."""

    def __init__(
        self,
        link: "Link",
        world: World,
        deliver: Callable[[bytes | None], None],
        name: str,
        way: tuple[str, str],
    ) -> None:
        self._way = way
        self._link = link
        self._world = world
        self._deliver = deliver
        self._name = name
        self._pieces: deque[bytes | None] = deque()
        self._last_due_ms = 0
        self.bytes_under_way = 0

    def put(self, data: bytes | None) -> None:
        world = self._world
        self._pieces.append(data)
        if data:
            self.bytes_under_way += len(data)
        due_ms = max(self._last_due_ms, world.now_ms + self._link.network.delay_ms())
        self._last_due_ms = due_ms
        world.after(due_ms - world.now_ms, self._arrive)

    def _arrive(self) -> None:
        world, link = self._world, self._link
        if not self._pieces:
            return
        if link.stalled_until_ms > world.now_ms:
            world.after(link.stalled_until_ms - world.now_ms, self._arrive)
            return
        if link.network.roads.holds(*self._way, self._arrive):
            link.was_stalled = True
            return
        data = self._pieces.popleft()
        if data is None:
            world.note(f"{link.name} {self._name} end")
        else:
            self.bytes_under_way -= len(data)
            world.note(f"{link.name} {self._name} {len(data)} {crc32(data):08x}")
        self._deliver(data)

    def drop(self) -> None:
        """Lose the pieces that are under way."""
        self._pieces.clear()
        self.bytes_under_way = 0


class Stream(MemoryStream):
    """The broker's end of a connection."""

    def __init__(self, link: "Link", fd: int, address: tuple[str, int]) -> None:
        super().__init__(fd, address)
        self._link = link

    @property
    def room_bytes(self) -> int:
        return max(self._link.window_bytes - self._link.to_client.bytes_under_way, 0)

    def recv_into(self, buffer: memoryview) -> int:
        self._link.network.moves += 1
        return super().recv_into(buffer)

    def _take(self, data: bytes) -> int:
        count = self._room_for(data, self.room_bytes)
        self._link.network.moves += 1
        self._link.to_client.put(data[:count])
        return count

    def send_file(self, file: Any, position: int, size_bytes: int) -> int:
        data = file.pread(size_bytes, position)
        return self._take(data) if data else 0

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._link.broker_closed()


class Link:
    """The client's end of a connection."""

    def __init__(self, network: "SimNetwork", name: str, peer: Peer, place: str) -> None:
        world = network.world
        self.network = network
        self.name = name
        self.peer = peer
        self.way_in = (place, network.place)
        self.way_out = (network.place, place)
        self.on_room: Callable[[], None] = lambda: None
        """Called when a piece has reached the broker, so that the client can send more."""
        self.stream: Stream | None = None
        self.stalled_until_ms = 0
        self.was_stalled = False
        self.is_open = True
        self.window_bytes = world.random.choice(network.windows)
        self.to_broker = _Pipe(self, world, self._at_broker, ">", self.way_in)
        self.to_client = _Pipe(self, world, self._at_client, "<", self.way_out)

    # --- the client ------------------------------------------------------------------------------
    def send(self, data: bytes) -> None:
        """Send in one piece, or in several that the seed cuts."""
        world = self.network.world
        while len(data) > 1 and world.chance(0.15):
            cut = world.between(1, len(data) - 1)
            self.to_broker.put(data[:cut])
            data = data[cut:]
        self.to_broker.put(data)

    def close(self) -> None:
        """Close the client's side: pieces under way to the broker may still arrive, or are lost."""
        if not self.is_open:
            return
        self.is_open = False
        self.to_client.drop()
        if self.network.world.chance(0.5):
            self.to_broker.put(None)
        else:
            self.break_off()

    # --- the network -----------------------------------------------------------------------------
    def stall(self, for_ms: int) -> None:
        """Deliver nothing for ``for_ms``."""
        self.stalled_until_ms = max(self.stalled_until_ms, self.network.world.now_ms + for_ms)
        self.was_stalled = True

    def break_off(self) -> None:
        """Reset the connection.

        Pieces under way are lost, and each side learns of the reset after a delay of its own.
        """
        self.to_broker.drop()
        self.to_client.drop()
        stream = self.stream
        if stream is not None and not stream.is_closed:

            def reset() -> None:
                stream.is_broken = True
                self.network.wake()

            self.network.pass_on(self.way_in, reset)
        if self.is_open:
            self.is_open = False
            self.network.world.note(f"{self.name} reset")
            self.network.pass_on(self.way_out, lambda: self.peer.closed("reset"))

    def fall_silent(self) -> None:
        """Switch the client's machine off: a broker that sends data to it gets a reset."""
        if self.is_open:
            self.to_client.drop()
            self.was_stalled = True
            self.peer = _Nobody(self)

    def _at_broker(self, data: bytes | None) -> None:
        stream = self.stream
        if stream is None or stream.is_closed:
            if self.is_open:
                self.break_off()
            return
        if data is None:
            stream.is_at_end = True
        else:
            stream.inbox += data
        self.network.wake()
        self.on_room()

    def _at_client(self, data: bytes | None) -> None:
        if not self.is_open:
            return
        if data is None:
            self.is_open = False
            self.peer.closed("closed by the broker")
            return
        self.peer.received(data)
        self.network.wake()  # there is space again

    # --- the broker ------------------------------------------------------------------------------
    def broker_closed(self) -> None:
        stream = self.stream
        assert stream is not None
        self.network.forget(stream)
        if not self.is_open:
            return
        if stream.inbox or stream.is_broken:
            self.break_off()
        else:
            self.to_client.put(None)


class _Nobody:
    """Stands in for a client on a machine that was switched off: resets when data arrives."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connected(self) -> None:
        self._link.break_off()

    def received(self, _data: bytes) -> None:
        self._link.break_off()

    def closed(self, why: str) -> None:
        pass


class Listener:
    """A listening socket with the connections that it has not accepted yet."""

    def __init__(self, fd: int, address: tuple[str, int]) -> None:
        self._fd = fd
        self._address = address
        self.waiting: deque[Stream] = deque()
        self.is_closed = False

    def fileno(self) -> int:
        return self._fd

    def accept(self) -> Stream:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.popleft()

    def address(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self.is_closed = True
        for stream in self.waiting:
            stream.close()


class SimNetwork:
    """The Network of one run of the broker, and its entrance for clients."""

    def __init__(
        self,
        world: World,
        *,
        has_socket_calls: bool,
        has_small_windows: bool,
        place: str = "broker",
        roads: Roads | None = None,
    ) -> None:
        self.world = world
        self.place = place
        self.roads = roads or OpenRoads()
        self.on_wake: Callable[[], None] = lambda: None
        self.poller = SimPoller(self)
        self.listener: Listener | None = None
        self.streams: dict[int, Stream | Outbound] = {}
        self.links: dict[Link, None] = {}
        self.moves = 0
        """Calls that received or sent something: a turn without any had no effect."""
        self.received_at_once = 0
        self.sent_at_once = 0
        self._has_socket_calls = has_socket_calls
        self.windows = (1 << 20, 1 << 20, 1 << 20, *_SMALL_WINDOWS[: 2 * has_small_windows])
        self._next_fd = 10
        self._is_gone = False

    def delay_ms(self) -> int:
        """How long a piece is under way."""
        slow = self.world.chance(0.1)
        return self.world.between(0, LONGEST_DELAY_MS if slow else 3)

    def wake(self) -> None:
        """Let the broker run a turn: it may have something to do."""
        self.on_wake()

    # --- for the broker --------------------------------------------------------------------------
    def socket_calls(self, arena: memoryview, replies: memoryview) -> SocketCalls | None:
        return FakeSocketCalls(self, arena, replies) if self._has_socket_calls else None

    def listen(self, host: str, port: int, backlog: int) -> Listener:
        self._next_fd += 1
        self.listener = Listener(self._next_fd, (host, port or 9092))
        return self.listener

    def connect(self, host: str, port: int, from_address: str | None = None) -> Outbound:
        target = self.roads.network_at(host, port)
        if target is None:
            raise ConnectionRefusedError(f"nobody has the address {host}:{port}")
        self._next_fd += 1
        address = (from_address or self.place, 30_000 + self._next_fd)
        stream = Outbound(self, self._next_fd, (host, port))
        self.streams[self._next_fd] = stream
        name = f"{self.place}-{target.place}/{self._next_fd}"
        stream.link = target.dial(name, address, stream, self.place)
        stream.link.on_room = self.wake
        return stream

    def pass_on(self, way: tuple[str, str], action: Callable[[], None]) -> None:
        """Run ``action`` after a delay, and not before the direction is open."""

        def arrive() -> None:
            if not self.roads.holds(*way, arrive):
                action()

        self.world.after(self.delay_ms(), arrive)

    def look_up(self, host: str) -> str:
        raise OSError(f"{host} has no address: a simulation has addresses only")

    def forget(self, stream: Stream) -> None:
        self.streams.pop(stream.fileno(), None)

    # --- for clients -----------------------------------------------------------------------------
    def dial(self, name: str, address: tuple[str, int], peer: Peer, place: str = "clients") -> Link:
        """Connect; the peer learns later whether the connection was accepted or refused."""
        link = Link(self, name, peer, place)
        self.links[link] = None

        def reach() -> None:
            listener = self.listener
            if not link.is_open:
                return
            if self._is_gone or listener is None or listener.is_closed:
                link.is_open = False
                self.pass_on(link.way_out, lambda: peer.closed("refused"))
                return
            self._next_fd += 1
            link.stream = Stream(link, self._next_fd, address)
            self.streams[self._next_fd] = link.stream
            listener.waiting.append(link.stream)
            self.wake()
            self.pass_on(link.way_out, be_connected)

        def be_connected() -> None:
            if link.is_open:
                peer.connected()

        self.pass_on(link.way_in, reach)
        return link

    def open_links(self) -> list[Link]:
        """The links that neither side has closed; closed links are forgotten."""
        self.links = {link: None for link in self.links if link.is_open}
        return list(self.links)

    def die(self, *, silently: bool = False) -> None:
        """The broker's process has ended.

        ``silently``: its machine is switched off, so its peers receive neither an end nor a reset.
        """
        self._is_gone = True
        for stream in list(self.streams.values()):
            if isinstance(stream, Outbound):
                stream.is_closed = True
                if silently:
                    stream.link.fall_silent()
                else:
                    stream.link.close()
        if silently:
            for link in self.open_links():
                link.to_client.drop()
                link.was_stalled = True
                if link.stream is not None:
                    link.stream.is_closed = True
            self.streams.clear()
            return
        for link in self.open_links():
            is_stalled = link.stalled_until_ms > self.world.now_ms
            if self.world.chance(0.5) and link.stream is not None and not is_stalled:
                # The data that the broker had sent still arrives before the next broker starts,
                # then the end.
                link.to_broker.drop()
                link.to_client.put(None)
                link.stream.is_closed = True
            else:
                link.break_off()
        self.streams.clear()
