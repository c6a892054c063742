"""The share of validation work that the event loop does itself. A helper thread validates the
batches that need more work."""

BATCH_WORK_BYTES = 256 * 1024
"""The most validation work that the event loop does for one batch; a helper thread validates a
batch that takes more. The unit is the time to decompress one byte, about 3 ns; the cost of
compressing and of reading records is converted to this unit."""

TURN_WORK_BYTES = 4 * 1024 * 1024
"""The most validation work that the event loop does in one turn, for all batches together, in bytes
to decompress, the unit of BATCH_WORK_BYTES. Helper threads validate the other batches."""


class LoopShareExceeded(Exception):
    """Signals, without a failure, that the batch takes more work than the event loop's share. A
    helper thread must validate the batch, without a limit of the work."""


class LoopShare:
    """The validation work that the event loop may still do itself in the current turn, before it
    leaves batches to a helper thread."""

    def __init__(
        self, batch_bytes: int = BATCH_WORK_BYTES, turn_bytes: int = TURN_WORK_BYTES
    ) -> None:
        self._batch_bytes = batch_bytes
        self._turn_bytes = turn_bytes
        self._turn = -1
        self._left_of_turn = turn_bytes
        self._left_of_batch = batch_bytes

    def begin_batch(self, turn: int) -> None:
        """Start to count the work for a new batch, in the event-loop turn with the number ``turn``.
        The first batch of a turn also starts the count of the turn's work again."""
        if turn != self._turn:
            self._turn = turn
            self._left_of_turn = self._turn_bytes
        self._left_of_batch = self._batch_bytes

    @property
    def left_bytes(self) -> int:
        """The validation work that the event loop may still do for the current batch, as a number
        of bytes to decompress."""
        return min(self._left_of_batch, self._left_of_turn)

    def count_work(self, work_bytes: int) -> None:
        """Count validation work before the work is done. Raises LoopShareExceeded if ``left_bytes``
        is smaller than ``work_bytes``."""
        if work_bytes > self.left_bytes:
            raise LoopShareExceeded
        self._left_of_batch -= work_bytes
        self._left_of_turn -= work_bytes
