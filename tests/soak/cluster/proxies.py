"""Connections between local processes that can be cut: TCP proxies that need no root.

A proxy knows its sender: a process connects from an address of its own (as a broker of a cluster on
loopback does), or to a port that no other process uses. Data in a cut direction waits, as if TCP
had to send it again, and arrives after the cut: late, and perhaps at a process that no longer
expects it.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

Party = int
"""A sender or receiver: a broker's number, or 0 for ZooKeeper."""
ZOOKEEPER: Party = 0
_PIECE_BYTES = 1 << 16
_DEADLINE_S = 30.0


class Ways:
    """All proxies, in a thread of their own; `close` ends them."""

    def __init__(self) -> None:
        self._cut: set[tuple[Party, Party]] = set()
        self._open: dict[asyncio.StreamWriter, frozenset[Party]] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    # --- for tests --------------------------------------------------------------------------------
    def to(self, receiver: Party, target: tuple[str, int], sender: Party | None = None) -> int:
        """Open a port of 127.0.0.1 that leads to a target.

        Without a ``sender``, a client that connects from 127.0.0.N is sender N.
        """
        return self._run(self._listen(receiver, target, sender))

    def cut(self, sender: Party, receiver: Party) -> None:
        """Let nothing pass from sender to receiver; the other direction stays."""
        self._run(self._set_cut(self._cut | {(sender, receiver)}))

    def split(self, one: Party, other: Party) -> None:
        """Let nothing pass between the two, in either direction."""
        self._run(self._set_cut(self._cut | {(one, other), (other, one)}))

    def heal(self) -> None:
        """End all cuts; data that waited arrives."""
        self._run(self._set_cut(set()))

    def break_all(self) -> None:
        """Reset all connections, and lose their data; new connections work."""
        self._run(self._break_all())

    def close(self) -> None:
        """End all connections and the thread."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_S)
        self._loop.close()

    # --- in the thread ---------------------------------------------------------------------------
    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_DEADLINE_S)

    async def _listen(self, receiver: Party, target: tuple[str, int], sender: Party | None) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host = writer.get_extra_info("peername")[0]
            who = int(host.rpartition(".")[2]) if sender is None else sender
            await self._connect(who, receiver, target, reader, writer)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, family=socket.AF_INET)
        return int(server.sockets[0].getsockname()[1])

    async def _connect(
        self,
        sender: Party,
        receiver: Party,
        target: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            await self._until_passable(sender, receiver)
            behind_reader, behind_writer = await asyncio.open_connection(*target)
        except OSError:
            _reset(writer)  # as a port without a listener does
            return
        both = frozenset((sender, receiver))
        for each in (writer, behind_writer):
            self._open[each] = both
        passable = (
            (lambda: self._until_passable(sender, receiver), reader, behind_writer),
            (lambda: self._until_passable(receiver, sender), behind_reader, writer),
        )
        for until_passable, source, sink in passable:
            pump = self._loop.create_task(self._pump(until_passable, source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        until_passable: Callable[[], Coroutine[Any, Any, None]],
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(_PIECE_BYTES):
                await until_passable()
                sink.write(piece)
                await sink.drain()
        # The end of a connection does not pass a cut either.
        await until_passable()
        self._open.pop(sink, None)
        sink.close()

    async def _until_passable(self, sender: Party, receiver: Party) -> None:
        while (sender, receiver) in self._cut:
            await self._whole.wait()

    async def _set_cut(self, cut: set[tuple[Party, Party]]) -> None:
        self._cut = cut
        if cut:
            self._whole.clear()
        else:
            self._whole.set()

    async def _break_all(self) -> None:
        for writer in list(self._open):
            _reset(writer)
        self._open.clear()

    async def _end(self) -> None:
        await self._break_all()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a reset, as a restarted machine does."""
    at_once = struct.pack("ii", 1, 0)
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    writer.transport.abort()
