"""The event loop and the streams that the evented driver needs, as Protocols.

The loop and the network of klog's broker satisfy them, and so can a simulation's.
"""

from collections.abc import Callable
from typing import Any, Protocol

READABLE = 1
WRITABLE = 2
BROKEN = 4
"""The bits that an `EventLoop` reports of a descriptor. BROKEN is never asked for; the bits that
were asked for are reported with it."""


class LoopTimer(Protocol):
    """A timer that was started."""

    def cancel(self) -> None:
        """Ends the timer; does nothing once it has expired."""


class EventLoop(Protocol):
    """The loop that everything here runs in; ``fd`` is a descriptor's number."""

    def now_ms(self) -> int:
        """The time of the loop's turn, by a clock that never goes back."""

    def call_at(self, deadline_ms: int, action: Callable[[], None], /) -> LoopTimer:
        """Runs ``action`` once, in the first turn at or after ``deadline_ms``."""

    def call_soon(self, action: Callable[[], None], /) -> None:
        """Runs ``action`` in the next turn, which does not wait for anything."""

    def call_at_send(self, action: Callable[[], None], /) -> None:
        """Runs ``action`` in this turn, when everything that was received has been looked at."""

    def register(self, fd: int, interest: int, callback: Callable[[int], None], /) -> None:
        """Calls ``callback(what is ready)`` in each turn in which ``fd`` is ready
        (level-triggered). ``interest`` has the bits READABLE and WRITABLE."""

    def modify(self, fd: int, interest: int, /) -> None:
        """Changes the interest of a registered descriptor."""

    def unregister(self, fd: int, /) -> None:
        """Ends the callbacks; called before the descriptor is closed."""


class LoopStream(Protocol):
    """A non-blocking stream. Errors are OSError; BlockingIOError means "not now"."""

    def fileno(self) -> int:
        """The number that the loop knows the stream by."""

    def connect_error(self) -> OSError | None:
        """How connecting ended, None if well; asked once, when the stream is first WRITABLE."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Bytes received; 0 at the end of the stream."""

    def send(self, parts: list[Any], /) -> int:
        """Sends byte strings one behind the other; returns how many bytes were taken."""

    def close(self) -> None: ...


class Connector(Protocol):
    """Makes streams."""

    def connect(self, host: str, port: int, from_address: str | None, /) -> LoopStream:
        """Begins to connect to an IP address, without waiting; the stream is WRITABLE at the end.
        OSError for what fails at once, ValueError for a host that is a name."""
