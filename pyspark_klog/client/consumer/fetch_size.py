"""How many bytes a fetch asks for: pure."""

_LEAST_BYTES = 65_536
"""Room for what lies before the first record and behind the last one in their batches."""
_FIRST_GUESS_BYTES = 256
_MARGIN = 1.25


class FetchSize:
    """Learns how many bytes bring a range in few replies, with little of what lies behind it.

    Bytes beyond the end of a range are dropped, and fetched again for the next range: a stream with
    a small limit on a long log would read the same bytes many times over.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes_an_offset: float = _FIRST_GUESS_BYTES

    def of(self, offsets: int) -> int:
        """How many bytes to ask for when ``offsets``, at least 1, are still to be read."""
        return min(self._most_bytes, _LEAST_BYTES + int(offsets * self._bytes_an_offset))

    def learn(self, data_bytes: int, offsets: int) -> None:
        """A reply of ``data_bytes`` has brought so many offsets."""
        self._bytes_an_offset = data_bytes / max(offsets, 1) * _MARGIN

    def ask_most(self) -> None:
        """Ask for as many bytes as may be, until the next `learn`."""
        self._bytes_an_offset = self._most_bytes
