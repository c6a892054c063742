"""What a decision asks its surroundings to do: answers to send, and records to append first."""

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
    """A parked request gets its reply."""

    waiter: Waiter
    reply: Any

    def send(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The reply, or ``error`` in its stead."""
        self.waiter(self.reply if error is ErrorCode.NONE else type(self.reply)(error_code=error))


@dataclass(slots=True)
class Effects(Generic[K, V]):
    """Answers leave when the high watermark has passed what was appended before them.

    With ``records`` set the runtime appends what it returns for a wall clock's time, applies it,
    and goes on with the machine's ``appended``; or, if it cannot be appended, ``append_failed``.
    """

    answers: list[WaiterReply] = field(default_factory=list)
    records: Callable[[int], Sequence[tuple[K, V | None]]] | None = None

    def answer(self, waiter: Waiter | None, reply: Any) -> None:
        if waiter is not None:
            self.answers.append(WaiterReply(waiter, reply))


class Machine(Protocol[K, V]):
    """What a shard keeps under a key and what has deadlines of its own: a group, a transaction.

    Times are milliseconds of the loop's clock.
    """

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` has something to do, or earlier; None if only a request can change
        anything."""

    def on_deadline(self, now_ms: int) -> Effects[K, V]: ...

    def appended(self, now_ms: int) -> Effects[K, V]:
        """The records that were asked for are in the log and were applied."""

    def append_failed(self, error: ErrorCode, now_ms: int) -> Effects[K, V]:
        """They could not be appended: nothing of them counts."""

    def reloaded(self, now_ms: int) -> None:
        """The log was replayed: this broker serves it from now on."""

    def unload(self) -> Effects[K, V]:
        """This broker serves it no longer: whoever waits is told so."""
