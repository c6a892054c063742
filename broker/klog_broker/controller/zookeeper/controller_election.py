"""Who is the controller: /controller, ephemeral, and /controller_epoch, a number that stays.

A candidate that finds no /controller makes it and raises the epoch in one multi, which names the
version of the epoch that it has read. So one candidate wins, and each epoch has one controller. An
answer that was lost may have been yes. The next attempt tells: it fails because the node is there,
and if the node is of the candidate's own session, then the candidate was elected, and nobody can
have been since; the epoch, which is read before the node, is its own.

The states (a break is one of the connection):

- AWAY: no connection yet in this session. When there is one: ASKING.
- ASKING: who is the controller is being asked, or a multi is on its way. The answer decides on
  OTHER or CONTROLLER; after a break everything is asked again.
- OTHER: another broker is the controller, and its node is watched. When that goes or changes, and
  after a break: ASKING.
- CONTROLLER: this broker is it, and its node is watched. After a break it is still, and asks. When
  the node is gone, or not its own: resigned, then ASKING. When the session is over: resigned, AWAY.
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


class State(Enum):
    """See the table above."""

    AWAY = "away"
    ASKING = "asking"
    OTHER = "other"
    CONTROLLER = "controller"


class Election:
    """A broker's candidacy, as long as it lives.

    All for the loop's thread.
    """

    def __init__(self, loop: Loop, broker_id: BrokerId, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the wall's time, which /controller tells."""
        self.on_elected: list[Callable[[FencedWrites], None]] = []
        """Called with the writes of the controller that this broker now is."""
        self.on_resigned: list[Callable[[], None]] = []
        """Called when these are over, before anybody asks who comes next."""
        self.on_controller: list[Callable[[BrokerId], None]] = []
        """Called with each controller that is another than before, NO_BROKER while nobody is it or
        nobody knows."""
        self.state = State.AWAY
        self.writes: FencedWrites | None = None
        """Those of the controller, while this broker is it."""
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
        """See SessionUser. A controller that only lost its connection is asked about, too: its node
        may have been deleted meanwhile."""
        self._session = session
        self._ask()

    def expired(self) -> None:
        """See SessionUser."""
        self._session = None
        self._conversation.drop()
        self._resign()
        self.state = State.AWAY
        self._controller_is(NO_BROKER)

    def _ask(self) -> None:
        session = self._session
        if session is None:
            return
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self.state is not State.CONTROLLER:
            self.state = State.ASKING
        self._conversation.begin(self._steps(session))

    def _steps(self, session: Session) -> Steps[None]:
        while True:
            # In this order: an epoch that is read before a node of this session is that node's.
            epoch = yield from self._epoch(session)
            if epoch is None:
                return
            node = yield from get(session, CONTROLLER, self._watch())
            if isinstance(node, Node):
                self._is_held(session, node, epoch)
                return
            self._resign()
            if not isinstance(node, NoNode):
                self._failed(CONTROLLER, node)
                return
            self.state = State.ASKING
            self._controller_is(NO_BROKER)
            failure = yield from self._stand(session, epoch)
            if failure is not None:
                self._failed(CONTROLLER, failure)
                return
            if self.state is State.CONTROLLER:
                # Once more for the watch.
                continue

    def _epoch(self, session: Session) -> Steps[ControllerEpoch | None]:
        """As it is now; made where it is missing. None if that cannot be told."""
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

    def _stand(self, session: Session, epoch: ControllerEpoch) -> Steps[ZooKeeperError | None]:
        """Ask to be elected; what is wrong, but for somebody else's being first."""
        registration = ControllerRegistration(self._broker_id, self._now_ms())
        number = epoch.number + 1
        answer = yield from multi(
            session,
            Create(CONTROLLER, encode_controller(registration), ephemeral=True),
            Set(CONTROLLER_EPOCH, encode_controller_epoch(number), epoch.version),
        )
        if isinstance(answer, MultiFailed):
            # Somebody was first; perhaps this broker, with an answer that was lost.
            is_late = isinstance(answer.error, NodeExists | BadVersion | NoNode)
            return None if is_late else answer
        if isinstance(answer, ZooKeeperError):
            return answer
        stat = answer[1]
        assert isinstance(stat, Stat)
        self._elected(session, ControllerEpoch(number, stat.version))
        return None

    def _is_held(self, session: Session, node: Node, epoch: ControllerEpoch) -> None:
        if node.stat.ephemeral_owner == session.session_id:
            if self.writes is None or self.writes.is_over or self.writes.epoch != epoch:
                self._resign()
                self._elected(session, epoch)
            return
        self._resign()
        self.state = State.OTHER
        self._controller_is(self._holder(node.data))

    def _holder(self, data: bytes) -> BrokerId:
        try:
            holder = decode_controller(data)
        except ZnodeError as error:
            if data != self._bad:
                _log.error(
                    "znode=%s is left as it is until somebody deletes it: %s", CONTROLLER, error
                )
            self._bad = data
            return NO_BROKER
        if holder.kraft_controller_epoch != -1 and data != self._bad:
            self._bad = data
            _log.error(
                "KRaft's controller %d has taken over the cluster, and klog does not go along",
                holder.broker_id,
            )
        return holder.broker_id

    def _elected(self, session: Session, epoch: ControllerEpoch) -> None:
        self.state = State.CONTROLLER
        self.writes = FencedWrites(session, epoch, self._moved)
        _log.info("broker_id=%d is the controller epoch=%d", self._broker_id, epoch.number)
        for tell in self.on_elected:
            tell(self.writes)
        self._controller_is(self._broker_id)

    def _moved(self) -> None:
        """A write has found that somebody else was elected."""
        self._resign()
        self._ask()

    def _resign(self) -> None:
        writes, self.writes = self.writes, None
        if writes is None:
            return
        writes.end()
        self.state = State.ASKING
        _log.warning(
            "broker_id=%d is the controller no more epoch=%d", self._broker_id, writes.epoch.number
        )
        for tell in self.on_resigned:
            tell()

    def _controller_is(self, broker_id: BrokerId) -> None:
        if broker_id != self._controller_id:
            self._controller_id = broker_id
            for tell in self.on_controller:
                tell(broker_id)

    def _failed(self, path: str, error: Exception) -> None:
        _log.error("znode=%s no controller can be elected, tried again: %s", path, error)
        self._retry = self._loop.call_later(RETRY_MS, self._ask)

    def _watch(self) -> Callable[[], None]:
        """Of watches of earlier questions only the newest counts."""
        self._watches += 1
        number = self._watches

        def changed() -> None:
            if number == self._watches:
                self._ask()

        return changed
