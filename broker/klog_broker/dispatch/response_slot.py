"""The place of one answer in its connection's queue, as the dispatcher and handlers see it."""

from collections.abc import Callable
from typing import Any, Protocol


class ReplySlot(Protocol):
    """A place in a connection's queue of replies: network.replies.QueuedReply."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_filled(self) -> bool:
        """Whether complete, skip or close was called."""

    def complete(self, parts: list[Any]) -> None:
        """Fills the place. The parts, byte strings and file regions, together are one frame."""

    def leave_now(self) -> None:
        """Sends what fills the place, if it is its turn, before the turn's other sends. Not while
        the request is begun."""

    def skip(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def when_closed(self, callback: Callable[[], None]) -> None: ...

    def hold(self) -> bool: ...
