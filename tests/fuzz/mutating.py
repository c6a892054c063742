"""Changes to bytes without regard to their meaning."""

from collections.abc import Sequence
from random import Random

_BORDERS = (0, 1, 2, 0x0F, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF)
_NUMBERS = [
    (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")
    for size in (2, 4, 8)
    for value in (0, 1, -1, -2, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1, 0x7FFF, 1 << 20)
]
_NUMBERS += [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80\x01"]


def mutated(data: bytes, random: Random, corpus: Sequence[bytes] = ()) -> bytes:
    """Change the data in a few places.

    The changes are flipped bits, other bytes, numbers at a limit, removed, repeated and foreign
    pieces, and a cut end.
    """
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 2, 4, 8))):
        size = len(changed)
        at = random.randrange(size + 1)
        kind = random.randrange(9)
        if kind == 0 and at < size:
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < size:
            changed[at] = random.choice(_BORDERS)
        elif kind in (2, 3):
            number = random.choice(_NUMBERS)
            changed[at : at + len(number)] = number
        elif kind == 4:
            del changed[at : at + random.choice((1, 1, 2, 4, 8, 60))]
        elif kind == 5:
            changed[at:at] = changed[at : at + random.choice((1, 2, 4, 8, 61, 200))]
        elif kind == 6:
            changed[at:at] = random.randbytes(random.choice((1, 2, 4, 8, 32)))
        elif kind == 7 and corpus:
            other = random.choice(corpus)
            start = random.randrange(len(other) + 1)
            changed[at:] = other[start : start + 4_000]
        elif kind == 8 and random.random() < 0.3:
            del changed[at:]
    return bytes(changed)
