"""The event loop and the streams that the evented driver needs, as Protocols.

The loop and the network of klog's broker implement them; a simulation can do so, too.
"""

from collections.abc import Callable
from typing import Any, Protocol

READABLE = 1
WRITABLE = 2
BROKEN = 4
"""The bits of a descriptor's readiness. BROKEN is never part of an interest, and is reported
together with the bits of the interest."""


class LoopTimer(Protocol):
    """A started timer."""

    def cancel(self) -> None:
        """Stops the timer; does nothing once it has expired."""


class EventLoop(Protocol):
    """The loop in which the driver runs; ``fd`` is a descriptor's number."""

    def now_ms(self) -> int:
        """The time of the loop's turn in ms, by a clock that never goes back."""

    def call_at(self, deadline_ms: int, action: Callable[[], None], /) -> LoopTimer:
        """Runs ``action`` once, in the first turn at or after ``deadline_ms``."""

    def call_soon(self, action: Callable[[], None], /) -> None:
        """Runs ``action`` in the next turn, which begins without waiting."""

    def call_at_send(self, action: Callable[[], None], /) -> None:
        """Runs ``action`` later in this turn, after all received bytes were handled."""

    def register(self, fd: int, interest: int, callback: Callable[[int], None], /) -> None:
        """Calls ``callback(readiness)`` in each turn in which ``fd`` is ready (level-triggered).
        ``interest`` has the bits READABLE and WRITABLE."""

    def modify(self, fd: int, interest: int, /) -> None:
        """Changes the interest of a registered descriptor."""

    def unregister(self, fd: int, /) -> None:
        """Ends the callbacks; must be called before the descriptor is closed."""


class LoopStream(Protocol):
    """A non-blocking stream. Errors are OSError; BlockingIOError means "not now"."""

    def fileno(self) -> int:
        """The stream's descriptor, for the loop."""

    def connect_error(self) -> OSError | None:
        """The error of connecting, or None; called once, when the stream is first WRITABLE."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receives into ``buffer``; returns the number of bytes, 0 at the end of the stream."""

    def send(self, parts: list[Any], /) -> int:
        """Sends byte strings in order; returns how many bytes were accepted."""

    def close(self) -> None: ...


class Connector(Protocol):
    """Makes streams."""

    def connect(self, host: str, port: int, from_address: str | None, /) -> LoopStream:
        """Begins to connect to an IP address; the stream becomes WRITABLE when that has ended.
        Raises OSError for an immediate failure, ValueError if ``host`` is a name."""
