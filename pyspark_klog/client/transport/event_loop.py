"""The event loop and the streams that `EventedConnection`, the non-blocking connection to a broker,
needs, as Protocols.

The loop and the network of klog's broker implement them; a simulation can do so, too.
"""

from collections.abc import Callable
from typing import Any, Protocol

READABLE = 1
WRITABLE = 2
BROKEN = 4
"""The bits of a file descriptor's readiness. A callback is registered with an interest: READABLE,
WRITABLE or both. BROKEN (an error or a hang-up) is reported together with the whole interest; a
loop that cannot detect it reports only the interest."""


class LoopTimer(Protocol):
    """A timer that `EventLoop.call_at` has started."""

    def cancel(self) -> None:
        """Stops the timer; does nothing once it has expired."""


class EventLoop(Protocol):
    """The event loop in which an `EventedConnection` runs. A turn is one pass of the loop; ``fd``
    is the number of a file descriptor."""

    def now_ms(self) -> int:
        """The time in ms at which the current event-loop turn stopped waiting for events, by a
        clock that never goes back."""

    def call_at(self, deadline_ms: int, action: Callable[[], None], /) -> LoopTimer:
        """Runs ``action`` once, in the first event-loop turn at or after ``deadline_ms``."""

    def call_soon(self, action: Callable[[], None], /) -> None:
        """Runs ``action`` after the caller has returned: in the next event-loop turn, which does
        not wait for events, or, if a timer's action is the caller, in the same turn."""

    def call_at_send(self, action: Callable[[], None], /) -> None:
        """Runs ``action`` later in the same event-loop turn, usually after the loop has handled the
        bytes that it received on all connections in this turn."""

    def register(self, fd: int, interest: int, callback: Callable[[int], None], /) -> None:
        """Calls ``callback(readiness)`` in each event-loop turn in which ``fd`` is ready
        (level-triggered). ``interest`` is READABLE, WRITABLE, or both: the readiness to wait
        for."""

    def modify(self, fd: int, interest: int, /) -> None:
        """Changes the interest of a registered descriptor: the readiness to wait for."""

    def unregister(self, fd: int, /) -> None:
        """Ends the callbacks for ``fd``; must be called before the descriptor is closed."""


class LoopStream(Protocol):
    """A non-blocking stream. Errors are OSError; BlockingIOError means that the stream has no bytes
    to receive, or accepts no bytes, at the moment."""

    def fileno(self) -> int:
        """The number of the stream's file descriptor, for `EventLoop.register`."""

    def connect_error(self) -> OSError | None:
        """The error with which connecting has failed, or None. Called once, when the stream is
        WRITABLE for the first time."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receives into ``buffer``; returns the number of bytes, 0 at the end of the stream."""

    def send(self, parts: list[Any], /) -> int:
        """Sends the byte strings ``parts`` in order; returns how many bytes the stream accepted."""

    def close(self) -> None: ...


class Connector(Protocol):
    """Makes streams."""

    def connect(self, host: str, port: int, from_address: str | None, /) -> LoopStream:
        """Begins to connect to an IP address. The stream becomes WRITABLE once it is connected or
        connecting has failed. Raises OSError for an immediate failure, ValueError if ``host`` is a
        name and this connector does not look up names."""
