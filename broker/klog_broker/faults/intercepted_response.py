"""The place of a response that a fault changes or drops before it reaches the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klog_broker.dispatch.response_slot import ResponseSlot

_IN_MEMORY = (bytes, bytearray, memoryview)


class InterceptedResponse:
    """A response's place that passes the encoded frame to ``on_complete`` in place of the client;
    ``on_skip`` is called if the request ends without a response. Everything else has its usual
    effect, and so has a response whose connection is closed, which is empty."""

    def __init__(
        self,
        slot: ResponseSlot,
        on_complete: Callable[[list[Any]], None],
        on_skip: Callable[[], None],
    ) -> None:
        self._slot = slot
        self._on_complete = on_complete
        self.skip = on_skip
        self.send_early = slot.send_early
        self.close = slot.close
        self.when_closed = slot.when_closed
        self.hold = slot.hold

    def complete(self, parts: list[Any]) -> None:
        if self._slot.is_open:
            self._on_complete(parts)
        else:
            self._slot.complete(parts)

    @property
    def is_open(self) -> bool:
        return self._slot.is_open

    @property
    def is_filled(self) -> bool:
        return self._slot.is_filled


def whole_frame(parts: list[Any]) -> memoryview:
    """Return the bytes of a response's frame, without its size; reads regions of files."""
    data = b"".join(
        part if isinstance(part, _IN_MEMORY) else part.file.pread(part.size, part.position)
        for part in parts
    )
    return memoryview(data)[4:]
