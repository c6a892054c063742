"""How much validation the loop does itself; batches that need more go to a helper thread."""

BATCH_WORK_BYTES = 256 * 1024
"""The share of one batch. The unit is a byte of inflating, some 3 ns; compressing and reading
records count as the bytes that could be inflated in the same time."""

TURN_WORK_BYTES = 4 * 1024 * 1024
"""The share of all batches of a turn."""


class TooMuchForTheLoop(Exception):
    """Not a fault: the batch has to be validated, without a share, in a helper thread."""


class LoopShare:
    """The rest of a turn's share."""

    def __init__(
        self, batch_bytes: int = BATCH_WORK_BYTES, turn_bytes: int = TURN_WORK_BYTES
    ) -> None:
        self._batch_bytes = batch_bytes
        self._turn_bytes = turn_bytes
        self._turn = -1
        self._left_of_turn = turn_bytes
        self._left_of_batch = batch_bytes

    def begin_batch(self, turn: int) -> None:
        """The next work belongs to another batch, in the loop's turn with this number."""
        if turn != self._turn:
            self._turn = turn
            self._left_of_turn = self._turn_bytes
        self._left_of_batch = self._batch_bytes

    @property
    def room_bytes(self) -> int:
        """How much work the batch may still take."""
        return min(self._left_of_batch, self._left_of_turn)

    def take(self, work_bytes: int) -> None:
        """Count work before it is done; TooMuchForTheLoop if there is no room for it."""
        if work_bytes > self.room_bytes:
            raise TooMuchForTheLoop
        self._left_of_batch -= work_bytes
        self._left_of_turn -= work_bytes
