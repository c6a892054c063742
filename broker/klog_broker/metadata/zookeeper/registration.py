"""/brokers/ids/N, ephemeral: that this broker lives. The node's czxid is the broker's epoch.

The same multi sets the data of /brokers/ids, to nothing, as it was: so its version tells that
somebody has registered, and a controller's write can check that nobody has since it looked.
"""

import logging
from collections.abc import Callable

from klog_broker.metadata.zookeeper.conversation import Conversation, Steps, exists, get, multi
from klog_broker.metadata.zookeeper.sessions import SessionUser
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.zookeeper.sessions import (
    Create,
    MultiFailed,
    Node,
    NodeExists,
    Session,
    Set,
    Stat,
    ZooKeeperError,
)
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.brokers import BrokerRegistration, decode_broker, encode_broker
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import BROKER_IDS, broker_path

_log = logging.getLogger("klog.cluster")

RETRY_MS = 1_000
_UNSIGNED = (1 << 64) - 1


class Registration:
    """Registers the broker once it is asked to, and again in every later session.

    Another session may have the number: that of this broker's last life, which ends by itself, or
    another broker's. Nobody can tell which, so it is waited for, `patience_ms` at most, and then
    `on_in_use` is called with a sentence, and nothing more is done.
    """

    def __init__(
        self,
        loop: Loop,
        broker_id: BrokerId,
        patience_ms: int,
        *,
        then: SessionUser,
        on_in_use: Callable[[str], None],
    ) -> None:
        """`then` is connected once the broker is registered, and is the first to hear that the
        session is over."""
        self.broker_id = broker_id
        self.broker_epoch = -1
        """While the broker is not registered -1."""
        self._loop = loop
        self._path = broker_path(broker_id)
        self._patience_ms = patience_ms
        self._then = then
        self._on_in_use = on_in_use
        self._says: Callable[[], BrokerRegistration] | None = None
        self._session: Session | None = None
        self._conversation = Conversation()
        self._deadline: Timer | None = None
        self._retry: Timer | None = None
        self._is_refused = False

    def register(self, says: Callable[[], BrokerRegistration]) -> None:
        """Be registered from now on; `says` is called each time, since its time is part of it."""
        self._says = says
        self._begin()

    def connected(self, session: Session) -> None:
        """See SessionUser. A node that is there already may be this session's. Time without a
        connection may be time without a ZooKeeper, in which no session ends: it does not count."""
        self._session = session
        self._end_waiting()
        self._begin()

    def expired(self) -> None:
        """See SessionUser."""
        self._then.expired()
        self._session = None
        self.broker_epoch = -1
        self._conversation.drop()
        self._end_waiting()

    def _begin(self) -> None:
        session, says = self._session, self._says
        if session is not None and says is not None and not self._is_refused:
            if self._retry is not None:
                self._retry.cancel()
            self._conversation.begin(self._steps(session, says))

    def _steps(self, session: Session, says: Callable[[], BrokerRegistration]) -> Steps[None]:
        while True:
            data = encode_broker(says())
            made = yield from multi(
                session, Set(BROKER_IDS, b""), Create(self._path, data, ephemeral=True)
            )
            if isinstance(made, ZooKeeperError) and not _is_there(made):
                self._failed(made)
                return
            stat = yield from exists(session, self._path, self._begin)
            if isinstance(stat, ZooKeeperError):
                self._failed(stat)
                return
            if stat is None:
                continue
            if stat.ephemeral_owner == session.session_id:
                self._registered(session, stat.czxid)
                return
            # The watch begins again when the node goes.
            yield from self._wait(session, says, stat.ephemeral_owner)
            return

    def _registered(self, session: Session, broker_epoch: int) -> None:
        self._end_waiting()
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            _log.info("broker_id=%d registered broker_epoch=%d", self.broker_id, broker_epoch)
        self._then.connected(session)

    def _wait(
        self, session: Session, says: Callable[[], BrokerRegistration], owner: int
    ) -> Steps[None]:
        if self._deadline is not None:
            return

        def over() -> None:
            self._conversation.begin(self._look_again(session, says, owner))

        self._deadline = self._loop.call_later(self._patience_ms, over)
        holder = yield from self._holder(session, owner)
        _log.warning(
            "broker_id=%d is registered by %s; if that is this broker's last life it ends within"
            " %d ms",
            self.broker_id,
            holder,
            self._patience_ms,
        )

    def _look_again(
        self, session: Session, says: Callable[[], BrokerRegistration], owner: int
    ) -> Steps[None]:
        """The time is over, by this broker's clock. Without a ZooKeeper the answer to this is that
        the connection is lost, and the next one begins anew."""
        self._deadline = None
        stat = yield from exists(session, self._path)
        if not isinstance(stat, Stat) or stat.ephemeral_owner != owner:
            yield from self._steps(session, says)
            return
        holder = yield from self._holder(session, owner)
        self._is_refused = True
        self._on_in_use(
            f"broker.id={self.broker_id} is in use: {self._path} belongs to another broker"
            f" ({holder}), and it did not end within {self._patience_ms} ms; give this broker"
            " another number and an empty data directory, or stop that one"
        )

    def _holder(self, session: Session, owner: int) -> Steps[str]:
        holder = f"session 0x{owner & _UNSIGNED:x}"
        node = yield from get(session, self._path)
        if not isinstance(node, Node):
            return holder
        try:
            endpoints = decode_broker(self.broker_id, node.data).endpoints
        except ZnodeError:
            return f"{holder}, whose data cannot be read"
        return f"{holder}, {','.join(map(str, endpoints))}"

    def _failed(self, error: ZooKeeperError) -> None:
        _log.error("broker_id=%d is not registered, tried again: %s", self.broker_id, error)
        self._retry = self._loop.call_later(RETRY_MS, self._begin)

    def _end_waiting(self) -> None:
        for timer in (self._deadline, self._retry):
            if timer is not None:
                timer.cancel()
        self._deadline = self._retry = None


def _is_there(error: ZooKeeperError) -> bool:
    return isinstance(error, MultiFailed) and isinstance(error.error, NodeExists)
