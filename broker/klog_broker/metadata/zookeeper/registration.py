"""/brokers/ids/N: this broker's registration, an ephemeral znode. Its czxid is the broker epoch.

The multi that creates the znode also sets the empty data of /brokers/ids again, which raises the
version of /brokers/ids. A controller's write can check this version, and so fails if a broker has
registered since the controller read the brokers.
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
_GRACE_MS = 5_000


def longest_wait_ms(timeout_ms: int) -> int:
    """Return how long a broker waits until ZooKeeper has ended another session that has the
    time-out ``timeout_ms``.

    A ZooKeeper server rounds the end of a session up to its next tick (tickTime). A tick is at most
    half of a time-out, unless minSessionTimeout is configured. `_GRACE_MS` is for the deletion of
    the session's znodes.
    """
    return timeout_ms + timeout_ms // 2 + _GRACE_MS


class Registration:
    """Registers the broker after `register` is called, and again in every later session.

    Another session may own the registration: an earlier session of this broker, which will expire,
    or the session of another broker with the same id. The broker cannot tell these apart, so it
    waits for the end of that session, for as long as ZooKeeper takes to end a session with the
    time-out of this broker's own (`Session.timeout_ms`). If that session still owns the
    registration then, the broker calls `on_in_use` with a sentence for the operator, and never
    registers.
    """

    def __init__(
        self,
        loop: Loop,
        broker_id: BrokerId,
        *,
        then: SessionUser,
        on_in_use: Callable[[str], None],
    ) -> None:
        """`then` is the controller election, which needs a registered broker: after each connection
        to ZooKeeper, `then.connected` is called once the broker is registered. When a session has
        expired, `then.expired` is called before `broker_epoch` becomes -1."""
        self.broker_id = broker_id
        self.broker_epoch = -1
        """The epoch of the present registration; -1 while the broker is not registered."""
        self._loop = loop
        self._path = broker_path(broker_id)
        self._then = then
        self._on_in_use = on_in_use
        self._says: Callable[[], BrokerRegistration] | None = None
        self._session: Session | None = None
        self._conversation = Conversation()
        self._deadline: Timer | None = None
        self._retry: Timer | None = None
        self._is_refused = False

    def register(self, says: Callable[[], BrokerRegistration]) -> None:
        """Register the broker now and in every later session. `says` makes the registration's data
        for each attempt, because the data includes the time."""
        self._says = says
        self._start_registration()

    def connected(self, session: Session) -> None:
        """Register the broker in `session`, unless this session has already registered it. If
        another session owns the registration, wait for the end of that session from the beginning,
        because no session ends while ZooKeeper is down."""
        self._session = session
        self._end_waiting()
        self._start_registration()

    def expired(self) -> None:
        """Report the session's end to the controller election (`then`), and wait for the next
        session."""
        self._then.expired()
        self._session = None
        self.broker_epoch = -1
        self._conversation.drop()
        self._end_waiting()

    def _start_registration(self) -> None:
        session, says = self._session, self._says
        if session is not None and says is not None and not self._is_refused:
            if self._retry is not None:
                self._retry.cancel()
            self._conversation.start_steps(self._steps(session, says))

    def _steps(self, session: Session, says: Callable[[], BrokerRegistration]) -> Steps[None]:
        while True:
            data = encode_broker(says())
            made = yield from multi(
                session, Set(BROKER_IDS, b""), Create(self._path, data, ephemeral=True)
            )
            if isinstance(made, ZooKeeperError) and not _is_there(made):
                self._failed(made)
                return
            stat = yield from exists(session, self._path, self._start_registration)
            if isinstance(stat, ZooKeeperError):
                self._failed(stat)
                return
            if stat is None:
                continue
            if stat.ephemeral_owner == session.session_id:
                self._registered(session, stat.czxid)
                return
            # Another session owns the registration: the watch of `exists` calls
            # `_start_registration` when that session's registration is deleted.
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

        wait_ms = longest_wait_ms(session.timeout_ms)

        def over() -> None:
            self._conversation.start_steps(self._check_again(session, says, owner, wait_ms))

        self._deadline = self._loop.call_later(wait_ms, over)
        holder = yield from self._holder(session, owner)
        _log.warning(
            "broker_id=%d is registered by %s; waiting for the end of that session, at most %d ms",
            self.broker_id,
            holder,
            wait_ms,
        )

    def _check_again(
        self, session: Session, says: Callable[[], BrokerRegistration], owner: int, waited_ms: int
    ) -> Steps[None]:
        """Check, after `waited_ms`, whether the session with the id `owner` still owns the
        registration, as it did before. If ZooKeeper is down, the check gets no response, and the
        wait starts again when the broker is connected (`connected`).
        """
        self._deadline = None
        stat = yield from exists(session, self._path)
        if not isinstance(stat, Stat) or stat.ephemeral_owner != owner:
            yield from self._steps(session, says)
            return
        holder = yield from self._holder(session, owner)
        self._is_refused = True
        self._on_in_use(
            f"broker.id={self.broker_id} is in use: {self._path} belongs to another broker"
            f" ({holder}), and it did not end within {waited_ms} ms; give this broker"
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
        _log.error(
            "broker_id=%d cannot be registered, the broker tries again: %s", self.broker_id, error
        )
        self._retry = self._loop.call_later(RETRY_MS, self._start_registration)

    def _end_waiting(self) -> None:
        for timer in (self._deadline, self._retry):
            if timer is not None:
                timer.cancel()
        self._deadline = self._retry = None


def _is_there(error: ZooKeeperError) -> bool:
    return isinstance(error, MultiFailed) and isinstance(error.error, NodeExists)
