"""A broker's sessions with ZooKeeper, one after the other."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.zookeeper.sessions import OpenSession, Session, SessionEvent

_log = logging.getLogger("klog.zookeeper")


class SessionUser(Protocol):
    """Works with ZooKeeper, through one session after the other."""

    def connected(self, session: Session) -> None:
        """A server was found: for the first time in this session or again. Watches of before are
        gone, so all that matters has to be read and watched anew."""

    def expired(self) -> None:
        """The session is over, and with it whatever it held. The next `connected` has another."""


class Sessions:
    """Opens a session, and another one once all users have heard that the last one has expired:
    so nobody can take what the old one held for what the new one holds.

    For the loop's thread.
    """

    def __init__(self, loop: Loop, open_session: OpenSession) -> None:
        self.connections = 0
        """How often a server was found."""
        self.is_connected = False
        self._loop = loop
        self._open_session = open_session
        self._users: Sequence[SessionUser] = ()
        self._session: Session | None = None
        self._number = 0
        self._is_closed = False

    def begin(self) -> None:
        """Open the first session."""
        self._open()

    def use(self, users: Sequence[SessionUser]) -> None:
        """From now on these are told, in this order, and no others: at once if there is a
        connection."""
        self._users = users
        if self._session is not None and self.is_connected:
            for user in users:
                user.connected(self._session)

    def close(self, done: Callable[[], None]) -> None:
        """End the session: what it holds in ZooKeeper goes. Nothing else is called any more, and
        `done` once ZooKeeper has heard of it or cannot be told."""
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
                self.connections += 1
                self.is_connected = True
                for user in self._users:
                    user.connected(session)
            case SessionEvent.DISCONNECTED:
                self.is_connected = False
            case SessionEvent.EXPIRED:
                self.is_connected = False
                _log.warning("the session is over, and another one begins")
                for user in self._users:
                    user.expired()
                self._open()
