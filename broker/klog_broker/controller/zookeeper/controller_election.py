"""The election of the controller by two znodes: /controller (ephemeral) and /controller_epoch.

A candidate that finds no /controller creates this znode and raises /controller_epoch in one multi,
which is conditional on the version of /controller_epoch that the candidate read before. So one
candidate wins, and each epoch has one controller. If the response to the multi is lost, the
candidate may have won, so it reads /controller_epoch, then /controller. If /controller is of its
own session, the candidate was elected, no other broker can have been elected since, and the epoch
that it read is its own.

The states (a break is a lost connection):

- AWAY: no connection yet in this session. Once connected: ASKING.
- ASKING: a read of the controller, or a multi, is outstanding. The response leads to OTHER or
  CONTROLLER; after a break, and RETRY_MS after any other failure, all reads are repeated.
- OTHER: another broker is the controller, or /controller is malformed. The znode is watched. When
  it changes or disappears, and after a break: ASKING.
- CONTROLLER: this broker is the controller, and its znode is watched. After a break the broker
  stays the controller and reads again. When the znode is gone or not readable, or a write finds
  that another broker was elected: resign, then ASKING. When the znode is of another session:
  resign, then OTHER. When the session expires: resign, then AWAY.
"""

import logging
from collections.abc import Callable
from enum import Enum

from klog_broker.controller.zookeeper.fenced_writes import ControllerEpoch, FencedWrites
from klog_broker.metadata.image import NO_BROKER
from klog_broker.metadata.zookeeper.conversation import Conversation, Steps, create, get, multi
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.zookeeper.sessions import (
    BadVersion,
    Create,
    Created,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    Session,
    Set,
    Stat,
    ZooKeeperError,
)
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.cluster import (
    FIRST_CONTROLLER_EPOCH,
    ControllerRegistration,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import CONTROLLER, CONTROLLER_EPOCH

_log = logging.getLogger("klog.controller")

RETRY_MS = 1_000


class ElectionState(Enum):
    """The state of a candidate; the module's docstring describes each state."""

    AWAY = "away"
    ASKING = "asking"
    OTHER = "other"
    CONTROLLER = "controller"


class Election:
    """A broker's candidacy for controller, for as long as its process runs.

    Not thread-safe: for the event loop's thread only.
    """

    def __init__(self, loop: Loop, broker_id: BrokerId, now_ms: Callable[[], int]) -> None:
        """`now_ms` returns the wall-clock time for the timestamp in /controller."""
        self.on_elected: list[Callable[[FencedWrites], None]] = []
        """Called when this broker becomes the controller. The argument writes to ZooKeeper
        until another controller is elected."""
        self.on_resigned: list[Callable[[], None]] = []
        """Called when this broker stops being the controller, before `on_controller` is called."""
        self.on_controller: list[Callable[[BrokerId], None]] = []
        """Called with the controller's id whenever it changes; NO_BROKER means that there is no
        controller, or that this broker does not know the controller."""
        self.state = ElectionState.AWAY
        self.writes: FencedWrites | None = None
        """The object that writes to ZooKeeper as the controller; None while this broker is not the
        controller."""
        self._loop = loop
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._controller_id = NO_BROKER
        self._session: Session | None = None
        self._conversation = Conversation()
        self._retry: Timer | None = None
        self._bad: bytes | None = None
        self._watches = 0

    def connected(self, session: Session) -> None:
        """Use a new connection to ZooKeeper: read the znode /controller, which names the
        controller.

        Even the controller reads the znode, because it may have been deleted while there was no
        connection.
        """
        self._session = session
        self._read_controller()

    def expired(self) -> None:
        """Resign if this broker is the controller, because the ZooKeeper session expired, and with
        it the broker's znode /controller."""
        self._session = None
        self._conversation.drop()
        self._resign()
        self.state = ElectionState.AWAY
        self._set_controller(NO_BROKER)

    def _read_controller(self) -> None:
        session = self._session
        if session is None:
            return
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self.state is not ElectionState.CONTROLLER:
            self.state = ElectionState.ASKING
        self._conversation.start_steps(self._steps(session))

    def _steps(self, session: Session) -> Steps[None]:
        while True:
            # Read /controller_epoch before /controller. If /controller is of this session, this
            # broker was the controller during both reads, so the epoch that was read is its own.
            epoch = yield from self._epoch(session)
            if epoch is None:
                return
            node = yield from get(session, CONTROLLER, self._watch())
            if isinstance(node, Node):
                self._take_controller(session, node, epoch)
                return
            self._resign()
            if not isinstance(node, NoNode):
                self._failed(CONTROLLER, node)
                return
            self.state = ElectionState.ASKING
            self._set_controller(NO_BROKER)
            failure = yield from self._try_election(session, epoch)
            if failure is not None:
                self._failed(CONTROLLER, failure)
                return
            if self.state is ElectionState.CONTROLLER:
                # This broker has just created /controller. Read the znode, to set a watch on it.
                continue

    def _epoch(self, session: Session) -> Steps[ControllerEpoch | None]:
        """Read the present controller epoch, and create its znode if missing. Returns None if this
        fails."""
        while True:
            node = yield from get(session, CONTROLLER_EPOCH)
            if isinstance(node, Node):
                try:
                    return ControllerEpoch(decode_controller_epoch(node.data), node.stat.version)
                except ZnodeError as error:
                    self._failed(CONTROLLER_EPOCH, error)
                    return None
            if isinstance(node, NoNode):
                data = encode_controller_epoch(FIRST_CONTROLLER_EPOCH - 1)
                made = yield from create(session, CONTROLLER_EPOCH, data)
                if isinstance(made, Created | NodeExists):
                    continue
                node = made
            self._failed(CONTROLLER_EPOCH, node)
            return None

    def _try_election(
        self, session: Session, epoch: ControllerEpoch
    ) -> Steps[ZooKeeperError | None]:
        """Try to become the controller.

        Returns the error; None if this broker was elected or another broker was faster.
        """
        registration = ControllerRegistration(self._broker_id, self._now_ms())
        number = epoch.number + 1
        answer = yield from multi(
            session,
            Create(CONTROLLER, encode_controller(registration), ephemeral=True),
            Set(CONTROLLER_EPOCH, encode_controller_epoch(number), epoch.version),
        )
        if isinstance(answer, MultiFailed):
            # A multi succeeded earlier: another broker's, or this broker's, whose response was
            # lost.
            is_late = isinstance(answer.error, NodeExists | BadVersion | NoNode)
            return None if is_late else answer
        if isinstance(answer, ZooKeeperError):
            return answer
        stat = answer[1]
        assert isinstance(stat, Stat)
        self._elected(session, ControllerEpoch(number, stat.version))
        return None

    def _take_controller(self, session: Session, node: Node, epoch: ControllerEpoch) -> None:
        if node.stat.ephemeral_owner == session.session_id:
            if self.writes is None or self.writes.is_over or self.writes.epoch != epoch:
                self._resign()
                self._elected(session, epoch)
            return
        self._resign()
        self.state = ElectionState.OTHER
        self._set_controller(self._holder(node.data))

    def _holder(self, data: bytes) -> BrokerId:
        try:
            holder = decode_controller(data)
        except ZnodeError as error:
            if data != self._bad:
                _log.error(
                    "znode=%s is unreadable: delete it to elect a controller: %s", CONTROLLER, error
                )
            self._bad = data
            return NO_BROKER
        if holder.kraft_controller_epoch != -1 and data != self._bad:
            self._bad = data
            _log.error(
                "KRaft's controller %d has taken over the cluster; klog does not support KRaft",
                holder.broker_id,
            )
        return holder.broker_id

    def _elected(self, session: Session, epoch: ControllerEpoch) -> None:
        self.state = ElectionState.CONTROLLER
        self.writes = FencedWrites(session, epoch, self._moved)
        _log.info("broker_id=%d is the controller epoch=%d", self._broker_id, epoch.number)
        for callback in self.on_elected:
            callback(self.writes)
        self._set_controller(self._broker_id)

    def _moved(self) -> None:
        """Resign as the controller, because a write to ZooKeeper found that another broker was
        elected."""
        self._resign()
        self._read_controller()

    def _resign(self) -> None:
        writes, self.writes = self.writes, None
        if writes is None:
            return
        writes.stop_writes()
        self.state = ElectionState.ASKING
        _log.warning(
            "broker_id=%d has resigned as the controller epoch=%d",
            self._broker_id,
            writes.epoch.number,
        )
        for callback in self.on_resigned:
            callback()

    def _set_controller(self, broker_id: BrokerId) -> None:
        if broker_id != self._controller_id:
            self._controller_id = broker_id
            for callback in self.on_controller:
                callback(broker_id)

    def _failed(self, path: str, error: Exception) -> None:
        _log.error("the election is tried again, because of a failure at znode=%s: %s", path, error)
        self._retry = self._loop.call_later(RETRY_MS, self._read_controller)

    def _watch(self) -> Callable[[], None]:
        """Return a callback for a watch on /controller. Only the newest callback has an effect."""
        self._watches += 1
        number = self._watches

        def changed() -> None:
            if number == self._watches:
                self._read_controller()

        return changed
