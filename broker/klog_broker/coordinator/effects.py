"""Effects of a machine's decision: records that the runtime appends, then responses to send."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pyspark_klog.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

Waiter = Callable[[Any], object]
"""A callback that sends the response to a parked request; a response has an ``error_code``."""


@dataclass(frozen=True, slots=True)
class ParkedResponse:
    """A response to one parked request, with the callback that sends it."""

    waiter: Waiter
    reply: Any

    def send(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Send the response; with an ``error``, send an empty response that has only the error."""
        self.waiter(self.reply if error is ErrorCode.NONE else type(self.reply)(error_code=error))


@dataclass(slots=True)
class Effects(Generic[K, V]):
    """The records and responses that a machine's decision results in.

    The runtime sends ``responses`` once the high watermark has passed the records that were
    appended before ``records``. ``records``, if set, takes the wall clock's time in ms and returns
    records. The runtime appends and applies the records, and then calls the machine's ``appended``,
    or its ``append_failed`` if the append fails.
    """

    responses: list[ParkedResponse] = field(default_factory=list)
    records: Callable[[int], Sequence[tuple[K, V | None]]] | None = None

    def add_response(self, waiter: Waiter | None, reply: Any) -> None:
        if waiter is not None:
            self.responses.append(ParkedResponse(waiter, reply))


class Machine(Protocol[K, V]):
    """The part of a shard's state under one key that has deadlines: a group, a transaction.

    Times are milliseconds of the loop's clock.
    """

    def next_deadline_ms(self) -> int | None:
        """When to call ``on_deadline``; None if only a request can change the machine.

        The time may be too early: the machine then has nothing to do.
        """

    def on_deadline(self, now_ms: int, /) -> Effects[K, V]: ...

    def appended(self, now_ms: int, /) -> Effects[K, V]:
        """Called when the records of the machine's last decision are appended and applied."""

    def append_failed(self, error: ErrorCode, now_ms: int, /) -> Effects[K, V]:
        """Called when the append of the last decision's records failed, so none of them took
        effect."""

    def reloaded(self, now_ms: int) -> None:
        """Called when the shard's log is replayed and this broker starts to serve the key."""

    def unload(self) -> Effects[K, V]:
        """Called when this broker stops serving the key; the effects answer parked requests."""
