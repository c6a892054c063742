"""Chooses how many bytes a fetch request asks for. Pure."""

_LEAST_BYTES = 65_536
"""Allowance for the records before and after the range that are in its first and last batches."""
_FIRST_GUESS_BYTES = 256
_MARGIN = 1.25


class FetchSize:
    """Learns how many bytes bring a range in few replies, with few bytes beyond the range's end.

    Bytes beyond the end of a range are dropped, and fetched again for the next range. Without this
    class a stream with a small limit on a long log would fetch the same bytes many times.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes_an_offset: float = _FIRST_GUESS_BYTES

    def of(self, offsets: int) -> int:
        """How many bytes to ask for when ``offsets``, at least 1, are still to be read."""
        return min(self._most_bytes, _LEAST_BYTES + int(offsets * self._bytes_an_offset))

    def learn(self, data_bytes: int, offsets: int) -> None:
        """Learn from a reply that ``data_bytes`` brought ``offsets`` offsets."""
        self._bytes_an_offset = data_bytes / max(offsets, 1) * _MARGIN

    def ask_most(self) -> None:
        """Make `of` return the largest size until the next `learn`."""
        self._bytes_an_offset = self._most_bytes
