"""The place of one answer, as handlers and the dispatcher see what the network has."""

from collections.abc import Callable
from typing import Any, Protocol


class ReplySlot(Protocol):
    """A place in a connection's queue of replies (network/connection.py has it)."""

    @property
    def is_open(self) -> bool: ...

    def complete(self, parts: list[Any]) -> None:
        """Fills the place: byte strings and file regions, which together are one whole frame."""

    def skip(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def when_closed(self, callback: Callable[[], None]) -> None: ...

    def hold(self) -> bool: ...
