"""Bytes for a broker's connection: damaged frames of every API, in pieces.

The first byte of an input chooses the size of the pieces, the rest is sent. The loop raises no
exception, the broker counts no bug, the connection ends when its client ends it, and other clients
are served.
"""

from random import Random

from tests.fuzz.brokers import FedBroker, frames_of, likely_request
from tests.fuzz.mutating import mutated
from tests.fuzz.target import Target

_STEPS = (1 << 20, 1 << 20, 1 << 20, 1_000, 100, 9)
_FIXED_BYTES = 8 << 20
_MOST_BYTES_A_BYTE = 200


class Frames(Target):
    """Feeds damaged frames to a broker."""

    name = "frames"
    block = 500

    def renew(self) -> None:
        self._broker = FedBroker()

    def make(self, random: Random) -> bytes:
        sent = bytearray()
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            frame = likely_request(random)[2]
            body = mutated(frame[4:], random) if random.random() < 0.8 else frame[4:]
            # Most frames have a right size, so that the broker parses the bytes behind them.
            size = random.choice((0, 7, -1, 1 << 30, len(body) + 1, 104_857_601))
            sent += (len(body) if random.random() < 0.95 else size).to_bytes(4, "big", signed=True)
            sent += body
        return bytes([random.randrange(len(_STEPS))]) + sent

    def check(self, data: bytes) -> None:
        step = _STEPS[(data[0] if data else 0) % len(_STEPS)]
        stream = self._broker.feed(data[1:], step)
        frames_of(bytes(stream.sent))

    def most_bytes(self, data: bytes) -> int:
        return _FIXED_BYTES + _MOST_BYTES_A_BYTE * len(data)


TARGET = Frames
