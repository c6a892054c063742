"""Chooses how many bytes a fetch request asks for. Pure."""

_LEAST_BYTES = 65_536
"""The number of bytes that is added to each estimated size of a range of offsets, because the first
and the last batch of a range also hold records outside the range."""
_FIRST_GUESS_BYTES = 256
_MARGIN = 1.25


class FetchSize:
    """Estimates how many bytes to request, so that a range of offsets arrives in few responses with
    few bytes beyond its end.

    The reader drops bytes beyond the end of a range, and fetches them again for the next range. A
    stream that reads a long log in small ranges would otherwise fetch the same bytes many times.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes_an_offset: float = _FIRST_GUESS_BYTES

    def of(self, offsets: int) -> int:
        """How many bytes to request while ``offsets`` offsets (at least 1) are still to be read."""
        return min(self._most_bytes, _LEAST_BYTES + int(offsets * self._bytes_an_offset))

    def learn(self, data_bytes: int, offsets: int) -> None:
        """Estimate the bytes for each offset again, from a response with ``data_bytes`` bytes of
        records for ``offsets`` offsets."""
        self._bytes_an_offset = data_bytes / max(offsets, 1) * _MARGIN

    def ask_most(self) -> None:
        """Make `of` return ``most_bytes``, the largest size, until the next call of `learn`."""
        self._bytes_an_offset = self._most_bytes
