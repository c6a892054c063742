"""A broker's sessions with ZooKeeper, one after the other."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from klog_broker.metrics.zookeeper import ZooKeeperCounts
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.zookeeper.sessions import OpenSession, Session, SessionEvent

_log = logging.getLogger("klog.zookeeper")


class SessionUser(Protocol):
    """Part of a broker that uses ZooKeeper: Sessions passes it each session of the broker."""

    def connected(self, session: Session) -> None:
        """Start work: the session has connected to a server, for the first time or again. Earlier
        watches are lost, so the user must read and watch its znodes again."""

    def expired(self) -> None:
        """Stop work: the session has expired, and its ephemeral znodes are deleted. The next call
        of `connected` passes a new session."""


class Sessions:
    """Opens a ZooKeeper session, and a new one after each that expires. The new session opens only
    after `expired` of all users (the parts of the broker that use ZooKeeper) has returned, so no
    user takes an ephemeral znode of the expired session for one of the new session.

    For the loop's thread.
    """

    def __init__(self, loop: Loop, open_session: OpenSession) -> None:
        self.counts = ZooKeeperCounts()
        self._loop = loop
        self._open_session = open_session
        self._users: Sequence[SessionUser] = ()
        self._session: Session | None = None
        self._number = 0
        self._is_closed = False

    def open_first_session(self) -> None:
        """Open the broker's first session with ZooKeeper."""
        self._open()

    def use(self, users: Sequence[SessionUser]) -> None:
        """Replace the users, the parts of the broker that use ZooKeeper; their methods are called
        in this order. If the session is connected, call their `connected` at once."""
        self._users = users
        if self._session is not None and self.counts.is_connected:
            for user in users:
                user.connected(self._session)

    def close(self, done: Callable[[], None]) -> None:
        """Close the session, which deletes its ephemeral znodes. The users (the parts of the broker
        that use ZooKeeper) are not called any more. Calls `done` once ZooKeeper has closed the
        session or cannot be reached."""
        self._is_closed = True
        if self._session is not None:
            self._session.close(done)

    def _open(self) -> None:
        self._number += 1
        number = self._number
        self._session = self._open_session(self._loop, lambda event: self._event(number, event))

    def _event(self, number: int, event: SessionEvent) -> None:
        if number != self._number or self._is_closed:
            return
        session = self._session
        assert session is not None
        match event:
            case SessionEvent.CONNECTED:
                self.counts.connects += 1
                self.counts.is_connected = True
                for user in self._users:
                    user.connected(session)
            case SessionEvent.DISCONNECTED:
                self.counts.disconnects += 1
                self.counts.is_connected = False
            case SessionEvent.EXPIRED:
                self.counts.expirations += 1
                self.counts.is_connected = False
                _log.warning("the ZooKeeper session has ended, and this broker opens a new one")
                for user in self._users:
                    user.expired()
                self._open()
