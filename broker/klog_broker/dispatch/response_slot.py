"""The interface of a response's place in its connection's queue, for dispatcher and handlers."""

from collections.abc import Callable
from typing import Any, Protocol


class ResponseSlot(Protocol):
    """A response's place in its connection's queue (network.responses.QueuedResponse), or the place
    of a response before which no other is outstanding (network.single_requests.SingleResponse)."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_filled(self) -> bool:
        """Whether complete, skip or close was called."""

    def complete(self, parts: list[Any]) -> None:
        """Fill the place with the response's encoded frame, given as byte strings and file
        regions."""

    def send_early(self) -> None:
        """Send the response before the other responses of this event-loop turn, unless an earlier
        response of the connection is missing.

        Must not be called while the handler runs: the connection is then still parsing its
        requests, and a send that fails closes it.
        """

    def skip(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def when_closed(self, callback: Callable[[], None]) -> None: ...

    def hold(self) -> bool: ...
