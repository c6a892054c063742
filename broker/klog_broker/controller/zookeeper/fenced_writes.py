"""The one way in which a controller writes to ZooKeeper: only as long as it is the controller.

Each write is a multi, whose first part checks that /controller_epoch is as this controller's own
election left it. So what a deposed controller still sends, or had sent before and arrives late,
changes nothing: an election that it has not heard of has changed that node. The other parts have
versions of their own where they change what was read before.
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
    """A controller's epoch, and the version that /controller_epoch had when it was elected."""

    number: int
    version: int


WriteDone = Callable[[tuple[Result, ...] | ZooKeeperError | ControllerMoved], None]
"""Gets the results of the parts; MultiFailed with the number of the part that could not be done;
ControllerMoved if nothing was done and nothing will be, since this is not the controller any more;
ConnectionLost or SessionExpired if nobody knows."""


class FencedWrites:
    """The writes of one controller, from its election to its end (`end`)."""

    def __init__(
        self, session: Session, epoch: ControllerEpoch, on_moved: Callable[[], None]
    ) -> None:
        """`on_moved` is called when a write finds that another controller was elected."""
        self.epoch = epoch
        self._session = session
        self._check = Check(CONTROLLER_EPOCH, epoch.version)
        self._on_moved = on_moved
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether this broker is not the controller of this epoch any more."""
        return self._is_over

    def end(self) -> None:
        """From now on nothing is sent. What is under way may still be done, if nobody else was
        elected before it arrives; `done` gets ControllerMoved for all that was not."""
        self._is_over = True

    def write(self, operations: Sequence[Operation], done: WriteDone) -> None:
        """Do all of these, or none. `done` is called once, later or, for a controller whose time is
        over, at once."""
        if self._is_over:
            done(self._moved())
            return

        def answered(answer: tuple[Result, ...] | ZooKeeperError) -> None:
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

        self._session.multi([self._check, *operations], answered)

    def _moved(self) -> ControllerMoved:
        return ControllerMoved(
            f"the controller of epoch {self.epoch.number} writes no more: another one was elected,"
            " or its session is over"
        )
