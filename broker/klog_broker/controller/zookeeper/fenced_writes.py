"""Fenced writes: the only way in which a controller writes to ZooKeeper.

Each write is a multi, whose first operation checks that /controller_epoch still has the version
that this controller's own election gave it. So writes of a deposed controller have no effect, even
if they arrive late, because the next election has changed that version. The other operations carry
their own version checks where they change data that was read before.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog_broker.controller.zookeeper.errors import ControllerMoved
from klog_broker.runtime.zookeeper.sessions import (
    BadVersion,
    Check,
    MultiFailed,
    NoNode,
    Operation,
    Result,
    Session,
    ZooKeeperError,
)
from pyspark_klog.znodes.paths import CONTROLLER_EPOCH


class ControllerEpoch(NamedTuple):
    """A controller's epoch, and the version of /controller_epoch after its election."""

    number: int
    version: int


WriteDone = Callable[[tuple[Result, ...] | ZooKeeperError | ControllerMoved], None]
"""The callback of a write. Its argument is one of:

- the results of the operations;
- MultiFailed, with the index of the operation that failed;
- ControllerMoved: nothing was or will be written, because this broker is no longer the controller;
- ConnectionLost or SessionExpired: the outcome is unknown;
- another ZooKeeperError: nothing was written.
"""


class FencedWrites:
    """Writes to ZooKeeper in one controller epoch, from this broker's election until `stop_writes`
    is called, or a write finds that another controller was elected."""

    def __init__(
        self, session: Session, epoch: ControllerEpoch, on_moved: Callable[[], None]
    ) -> None:
        """`on_moved` is called when a write to ZooKeeper finds that another controller was
        elected."""
        self.epoch = epoch
        self._session = session
        self._check = Check(CONTROLLER_EPOCH, epoch.version)
        self._on_moved = on_moved
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether this broker is no longer the controller of this epoch."""
        return self._is_over

    def stop_writes(self) -> None:
        """Send no more writes: `write` answers ControllerMoved from now on.

        An outstanding write still takes effect if it arrives before the next election; if it
        arrives later, it gets ControllerMoved.
        """
        self._is_over = True

    def write(self, operations: Sequence[Operation], done: WriteDone) -> None:
        """Carry out all of these operations, or none.

        `done` is called once: before this method returns if this broker is no longer the controller
        of the epoch (`is_over`), otherwise later.
        """
        if self._is_over:
            done(self._moved())
            return

        def on_response(answer: tuple[Result, ...] | ZooKeeperError) -> None:
            if not isinstance(answer, MultiFailed):
                done(answer if isinstance(answer, ZooKeeperError) else answer[1:])
            elif answer.index > 0:
                done(MultiFailed(answer.index - 1, answer.error))
            elif isinstance(answer.error, BadVersion | NoNode):
                was_over, self._is_over = self._is_over, True
                done(self._moved())
                if not was_over:
                    self._on_moved()
            else:
                done(answer.error)

        self._session.multi([self._check, *operations], on_response)

    def _moved(self) -> ControllerMoved:
        return ControllerMoved(
            f"the controller of epoch {self.epoch.number} may no longer write: another controller"
            " was elected, or its session expired"
        )
