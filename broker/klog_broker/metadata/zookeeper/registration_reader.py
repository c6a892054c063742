"""/brokers/ids: the live brokers and their advertised addresses."""

import logging
from collections.abc import Callable, Mapping

from klog_broker.config import Listener
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.metadata.zookeeper.bad_znodes import BadZnodes
from klog_broker.metadata.zookeeper.conversation import Conversation, Steps, children, get
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.zookeeper.sessions import (
    Children,
    NoAuth,
    Node,
    NoNode,
    Session,
    ZooKeeperError,
)
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.brokers import decode_broker
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import BROKER_IDS, broker_path, registered_id

_log = logging.getLogger("klog.cluster")

RETRY_MS = 1_000


class BrokerRegistrationReader:
    """Reads all brokers' registrations at each connection to ZooKeeper, and again when one is
    created, deleted or changed, even if it is deleted and created again at once.

    `on_read` gets all readable registrations by broker id. Like the controller, the reader ignores
    a registration that an access list hides from this broker. The owner of the broker's ZooKeeper
    sessions calls `connected` and `expired`.
    """

    def __init__(
        self, loop: Loop, on_read: Callable[[Mapping[BrokerId, BrokerRegistration]], None]
    ) -> None:
        self._loop = loop
        self._on_read = on_read
        self._session: Session | None = None
        self._conversation = Conversation()
        self._watched: set[str] = set()
        self._changed_again = False
        self._retry: Timer | None = None
        self._bad = BadZnodes(_log)

    def connected(self, session: Session) -> None:
        """Read and watch all registrations in `session`."""
        self._session = session
        self._watched = set()
        self._read()

    def expired(self) -> None:
        """Stop reading. The registrations that were read last stay valid until the next read."""
        self._session = None
        self._conversation.drop()
        self._cancel_retry()

    def _read(self) -> None:
        session = self._session
        if session is not None:
            self._changed_again = False
            self._cancel_retry()
            self._conversation.start_steps(self._steps(session))

    def _changed(self) -> None:
        # A registration has changed. A read that is under way may have missed this change, so read
        # once more after it.
        if self._conversation.is_under_way:
            self._changed_again = True
        else:
            self._read()

    def _steps(self, session: Session) -> Steps[None]:
        while True:
            self._changed_again = False
            listed = yield from children(session, BROKER_IDS, self._watch(BROKER_IDS))
            if not isinstance(listed, Children):
                self._watched.discard(BROKER_IDS)
                self._failed(listed)
                return
            found: dict[BrokerId, BrokerRegistration] = {}
            for name in listed.names:
                broker_id = registered_id(name)
                if broker_id is None:
                    self._bad.name(f"{BROKER_IDS}/{name}", b"", "a name that is no broker's id")
                    continue
                path = broker_path(broker_id)
                node = yield from get(session, path, self._watch(path))
                if not isinstance(node, Node):
                    self._watched.discard(path)
                if isinstance(node, NoNode):
                    continue  # deleted since BROKER_IDS was listed: its watch starts a new read
                if isinstance(node, NoAuth):
                    self._bad.name(path, b"", str(node))
                    continue
                if isinstance(node, ZooKeeperError):
                    self._failed(node)
                    return
                try:
                    found[broker_id] = decode_registration(broker_id, node.data)
                except ZnodeError as error:
                    self._bad.name(path, node.data, str(error))
            if not self._changed_again:
                self._on_read(found)
                return

    def _watch(self, path: str) -> Callable[[], None] | None:
        """Return the watch for the next request about `path`, or None if an earlier watch of `path`
        has not fired yet: with a watch for each request, watches would pile up."""
        if path in self._watched:
            return None
        self._watched.add(path)

        def changed() -> None:
            self._watched.discard(path)
            self._changed()

        return changed

    def _failed(self, error: ZooKeeperError) -> None:
        _log.error("cannot read the brokers' registrations, this broker tries again: %s", error)
        self._retry = self._loop.call_later(RETRY_MS, self._read)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


def decode_registration(broker_id: BrokerId, data: bytes) -> BrokerRegistration:
    """Return the registration in a broker's znode data.

    :raises ZnodeError: if the data cannot be decoded
    """
    read = decode_broker(broker_id, data)
    endpoints = tuple(
        Listener(each.listener, each.security_protocol, each.host or "", each.port)
        for each in read.endpoints
    )
    return BrokerRegistration(broker_id, endpoints, read.rack)
