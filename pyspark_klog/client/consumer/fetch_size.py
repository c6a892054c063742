"""How many bytes a fetch asks for: pure."""

_LEAST_BYTES = 65_536
"""Room for what lies before the first record and behind the last one in their batches."""
_FIRST_GUESS_BYTES = 256
_MARGIN = 1.25


class FetchSize:
    """So many bytes that a range comes in few replies, and little of what lies behind it.

    What comes beyond the end of a range is dropped, and fetched again for the next range: a stream
    with a small limit on a long log would read the same bytes many times over.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes_an_offset: float = _FIRST_GUESS_BYTES

    def of(self, offsets: int) -> int:
        """What to ask for when so many offsets are still to be read: at least 1."""
        return min(self._most_bytes, _LEAST_BYTES + int(offsets * self._bytes_an_offset))

    def learn(self, data_bytes: int, offsets: int) -> None:
        """So many bytes have brought so many offsets."""
        self._bytes_an_offset = data_bytes / max(offsets, 1) * _MARGIN

    def ask_most(self) -> None:
        """From now on ask for all that may be asked for, until something is learned."""
        self._bytes_an_offset = self._most_bytes
