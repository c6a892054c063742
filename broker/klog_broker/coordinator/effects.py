"""What a machine's decision asks the runtime to do: append records, then send answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pyspark_klog.errors import ErrorCode

K = TypeVar("K")
V = TypeVar("V")

Waiter = Callable[[Any], object]
"""Takes the reply to a parked request, a message that has an ``error_code``."""


@dataclass(frozen=True, slots=True)
class WaiterReply:
    """The reply to one parked request."""

    waiter: Waiter
    reply: Any

    def send(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Send the reply, or ``error`` instead of it."""
        self.waiter(self.reply if error is ErrorCode.NONE else type(self.reply)(error_code=error))


@dataclass(slots=True)
class Effects(Generic[K, V]):
    """Answers leave when the high watermark has passed all records appended before them.

    ``records``, if set, takes the wall clock's time in ms and returns records. The runtime appends
    and applies them, and goes on with the machine's ``appended``; if they cannot be appended, with
    its ``append_failed``.
    """

    answers: list[WaiterReply] = field(default_factory=list)
    records: Callable[[int], Sequence[tuple[K, V | None]]] | None = None

    def answer(self, waiter: Waiter | None, reply: Any) -> None:
        if waiter is not None:
            self.answers.append(WaiterReply(waiter, reply))


class Machine(Protocol[K, V]):
    """The part of a shard's state under one key that has deadlines: a group, a transaction.

    Times are milliseconds of the loop's clock.
    """

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` has something to do, or earlier; None if only a request can change
        anything."""

    def on_deadline(self, now_ms: int, /) -> Effects[K, V]: ...

    def appended(self, now_ms: int, /) -> Effects[K, V]:
        """The records that were asked for are in the log and were applied."""

    def append_failed(self, error: ErrorCode, now_ms: int, /) -> Effects[K, V]:
        """The records that were asked for could not be appended: none of them counts."""

    def reloaded(self, now_ms: int) -> None:
        """The shard's log was replayed: this broker serves the machine's key from now on."""

    def unload(self) -> Effects[K, V]:
        """This broker serves the key no longer: the answers tell all who wait so."""
