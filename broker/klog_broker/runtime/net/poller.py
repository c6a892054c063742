"""Pollers: they report which sockets are ready. The loop sleeps only in ``Poller.poll``.

The poller is a parameter of the loop: epoll on Linux, ``selectors.DefaultSelector`` elsewhere, and
a router of simulated connections in tests. Pollers are level-triggered: a socket with unread bytes
is reported again in the next ``poll``.
"""

import contextlib
import os
import select
import selectors
import socket
import sys
import threading
from typing import Protocol

READABLE = 1
WRITABLE = 2
BROKEN = 4
"""Both directions of the stream are closed, or an error is pending. EpollPoller reports this event
whatever the interest of the socket is, so BROKEN is not part of an interest."""


class Poller(Protocol):
    """Registered descriptors with their interest, a bit set of READABLE and WRITABLE."""

    def register(self, fd: int, interest: int) -> None:
        """Start to watch ``fd``. With an interest of 0 at most BROKEN is reported."""

    def modify(self, fd: int, interest: int) -> None:
        """Replace the interest (events to watch for) of a registered ``fd``."""

    def unregister(self, fd: int) -> None:
        """Stop watching ``fd``; call before the descriptor is closed."""

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        """Wait until a descriptor is ready, ``wake`` is called or the timeout (None: none) passes.

        Returns a list of (fd, bit set of events). BROKEN comes together with the whole interest of
        the socket: the next call on the socket then raises the error, or finds the end of the
        stream. SelectorPoller never reports BROKEN, but reports a broken socket as ready for its
        interest, if that is not 0.
        """

    def wake(self) -> None:
        """Make the running or the next ``poll`` return. Call from any thread or signal handler; a
        call after ``close`` does nothing."""

    def close(self) -> None:
        """Close the poller's own descriptors."""


class EpollPoller:
    """A poller on Linux's epoll, woken through an eventfd."""

    _MAX_EVENTS = 1024

    def __init__(self) -> None:
        assert select.EPOLLIN == READABLE
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._interest: dict[int, int] = {}
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # This lock is reentrant, because a signal handler may call wake in a thread that is in wake
        # or close.
        self._waking = threading.RLock()
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    @staticmethod
    def _mask(interest: int) -> int:
        mask = select.EPOLLIN if interest & READABLE else 0
        return mask | select.EPOLLOUT if interest & WRITABLE else mask

    def register(self, fd: int, interest: int) -> None:
        self._epoll.register(fd, self._mask(interest))
        self._interest[fd] = interest

    def modify(self, fd: int, interest: int) -> None:
        if self._interest[fd] != interest:
            self._epoll.modify(fd, self._mask(interest))
            self._interest[fd] = interest

    def unregister(self, fd: int) -> None:
        del self._interest[fd]
        self._epoll.unregister(fd)

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        timeout_s = -1.0 if timeout_ms is None else timeout_ms / 1000
        found = self._poll(timeout_s, self._MAX_EVENTS)
        wake_fd = self._wake_fd
        for fd, mask in found:
            if mask != READABLE or fd == wake_fd:
                return self._translated(found)
        # In most turns all ready sockets are only readable, and EPOLLIN equals READABLE: then
        # epoll's list needs no translation.
        return found

    def _translated(self, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
        ready: list[tuple[int, int]] = []
        for fd, mask in found:
            if fd == self._wake_fd:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)
                continue
            events = READABLE if mask & select.EPOLLIN else 0
            if mask & select.EPOLLOUT:
                events |= WRITABLE
            if mask & (select.EPOLLERR | select.EPOLLHUP):
                events |= BROKEN | self._interest[fd]
            ready.append((fd, events))
        return ready

    def wake(self) -> None:
        with self._waking:
            if self._wake_fd >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        # The lock keeps other threads from writing to the eventfd after it is closed: its number
        # may soon belong to another file.
        with self._waking:
            wake_fd, self._wake_fd = self._wake_fd, -1
            os.close(wake_fd)
        self._epoll.close()


class SelectorPoller:
    """A poller on the standard library's selector, woken through a socket pair.

    Slower than EpollPoller, but works on every system.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._interest: dict[int, int] = {}
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    @staticmethod
    def _mask(interest: int) -> int:
        mask = selectors.EVENT_READ if interest & READABLE else 0
        return mask | selectors.EVENT_WRITE if interest & WRITABLE else mask

    def register(self, fd: int, interest: int) -> None:
        if interest:
            self._selector.register(fd, self._mask(interest))
        self._interest[fd] = interest

    def modify(self, fd: int, interest: int) -> None:
        before = self._interest[fd]
        if before == interest:
            return
        # A selector refuses an interest of 0, so such a descriptor is not registered with it.
        if before == 0:
            self._selector.register(fd, self._mask(interest))
        elif interest == 0:
            self._selector.unregister(fd)
        else:
            self._selector.modify(fd, self._mask(interest))
        self._interest[fd] = interest

    def unregister(self, fd: int) -> None:
        if self._interest.pop(fd):
            self._selector.unregister(fd)

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        ready: list[tuple[int, int]] = []
        for key, mask in self._selector.select(timeout_s):
            if key.fileobj is self._wake_reader:
                with contextlib.suppress(BlockingIOError):
                    self._wake_reader.recv(4096)
                continue
            events = READABLE if mask & selectors.EVENT_READ else 0
            if mask & selectors.EVENT_WRITE:
                events |= WRITABLE
            ready.append((key.fd, events))
        return ready

    def wake(self) -> None:
        # A full socket pair means that the poller has been woken already.
        if self._wake_writer.fileno() >= 0:
            with contextlib.suppress(BlockingIOError):
                self._wake_writer.send(b"\0")

    def close(self) -> None:
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()


def default_poller() -> Poller:
    """Return an EpollPoller on Linux, a SelectorPoller on other systems."""
    return EpollPoller() if sys.platform == "linux" else SelectorPoller()
