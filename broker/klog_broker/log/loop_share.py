"""How much of validating batches the loop does itself; what is more goes to a helper thread."""

BATCH_WORK_BYTES = 256 * 1024
"""For one batch. The unit is a byte of inflating, some 3 ns; compressing and looking at records
count as so many bytes as could be inflated meanwhile."""

TURN_WORK_BYTES = 4 * 1024 * 1024
"""For all batches of a turn."""


class TooMuchForTheLoop(Exception):
    """Not a fault: validate again, without a share, in a helper thread."""


class LoopShare:
    """What is left of a turn's share."""

    def __init__(
        self, batch_bytes: int = BATCH_WORK_BYTES, turn_bytes: int = TURN_WORK_BYTES
    ) -> None:
        self._batch_bytes = batch_bytes
        self._turn_bytes = turn_bytes
        self._turn = -1
        self._left_of_turn = turn_bytes
        self._left_of_batch = batch_bytes

    def begin_batch(self, turn: int) -> None:
        """What comes now belongs to another batch, and to the loop's turn of that number."""
        if turn != self._turn:
            self._turn = turn
            self._left_of_turn = self._turn_bytes
        self._left_of_batch = self._batch_bytes

    @property
    def room_bytes(self) -> int:
        """What the batch may still take."""
        return min(self._left_of_batch, self._left_of_turn)

    def take(self, work_bytes: int) -> None:
        """Count work before it is done; TooMuchForTheLoop if there is no room for it."""
        if work_bytes > self.room_bytes:
            raise TooMuchForTheLoop
        self._left_of_batch -= work_bytes
        self._left_of_turn -= work_bytes
