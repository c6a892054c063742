"""Decisions of the state machines of groups and transactions: records to append, and responses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pyspark_klog.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

Waiter = Callable[[Any], object]
"""A callback that sends the response to a request, at once or later (because the request waits for
other members, for example). A response has an ``error_code``."""


@dataclass(frozen=True, slots=True)
class ParkedResponse:
    """The response to one request, perhaps one that has waited (for other members, for example),
    with the callback that sends the response."""

    waiter: Waiter
    response: Any

    def send(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Send the response; with an ``error``, send an empty response that has only the error."""
        self.waiter(
            self.response if error is ErrorCode.NONE else type(self.response)(error_code=error)
        )


@dataclass(slots=True)
class Effects(Generic[K, V]):
    """The decision of a state machine: the records to append and the responses to send.

    The coordinator runtime (runtime.py) sends ``responses`` once the high watermark has passed all
    records that were appended before ``records``. ``records``, if set, is a function of the wall
    clock's time in ms that returns the records. The runtime appends them to the shard's log,
    applies them to the shard's state, and then calls the machine's ``appended``. If the append
    fails, it calls ``append_failed`` instead.
    """

    responses: list[ParkedResponse] = field(default_factory=list)
    records: Callable[[int], Sequence[tuple[K, V | None]]] | None = None

    def add_response(self, waiter: Waiter | None, response: Any) -> None:
        if waiter is not None:
            self.responses.append(ParkedResponse(waiter, response))


class Machine(Protocol[K, V]):
    """The state machine of one key: a group id, or a transactional id.

    Deadlines and ``now_ms`` are milliseconds of the event loop's clock.
    """

    def next_deadline_ms(self) -> int | None:
        """The time at which to call ``on_deadline``; None if only a request can change the machine.

        The time may be too early: ``on_deadline`` then changes nothing.
        """

    def on_deadline(self, now_ms: int, /) -> Effects[K, V]: ...

    def appended(self, now_ms: int, /) -> Effects[K, V]:
        """Called when the records that the machine returned last are appended and applied."""

    def append_failed(self, error: ErrorCode, now_ms: int, /) -> Effects[K, V]:
        """Called when the records that the machine returned last could not be appended, or when
        the shard has failed because it could not apply them."""

    def reloaded(self, now_ms: int) -> None:
        """Called once the log of the machine's shard is replayed, before this broker starts to
        serve requests to the machine's group or transactional id."""

    def unload(self) -> Effects[K, V]:
        """Called when this broker stops serving the machine's group or transactional id; returns
        error responses to the requests that are parked in the machine (to be answered later)."""
