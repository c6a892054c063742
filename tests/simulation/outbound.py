"""The connecting end of a connection from one simulated broker to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.runtime.fake_network import MemoryStream

if TYPE_CHECKING:
    from tests.simulation.network import Link, SimNetwork


class Outbound(MemoryStream):
    """A connection to another broker, as the connecting broker sees it."""

    def __init__(self, network: SimNetwork, fd: int, address: tuple[str, int]) -> None:
        super().__init__(fd, address)
        self.link: Link
        self._network = network
        self._is_connected = False

    # --- events of the link -----------------------------------------------------------------------
    def connected(self) -> None:
        self._is_connected = True
        self._network.wake()

    def received(self, data: bytes) -> None:
        self.inbox += data
        self._network.wake()

    def closed(self, why: str) -> None:
        if self._is_connected and why != "reset":
            self.is_at_end = True
        else:
            self.failed_connect = ConnectionRefusedError(why)
            self.is_broken = True
        self._network.wake()

    # --- the stream ------------------------------------------------------------------------------
    @property
    def room_bytes(self) -> int:
        if not self._is_connected:
            return 0
        return max(self.link.window_bytes - self.link.to_broker.bytes_under_way, 0)

    def recv_into(self, buffer: memoryview) -> int:
        self._network.moves += 1
        return super().recv_into(buffer)

    def _take(self, data: bytes) -> int:
        if self.is_at_end and not self.link.is_open:
            raise BrokenPipeError("closed by the other side")
        count = self._room_for(data, self.room_bytes)
        self._network.moves += 1
        self.link.send(data[:count])
        return count

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._network.streams.pop(self._fd, None)
            self.link.close()
