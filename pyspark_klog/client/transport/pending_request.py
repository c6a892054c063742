"""One request of an evented connection, from the call that sends it until its callback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark_klog.client.transport.connection import Call
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.message import Request, Response

R = TypeVar("R", bound=Response)

Build = Callable[[int], Request]
"""Builds a request in the given API version, without side effects."""
OnDone = Callable[[R | None, KlogError | None], None]
"""The callback of a request, called with (response, None) or (None, error)."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request from the call of `EventedConnection.send` until its callback was called."""

    number: int
    """The number of the `send` call, counted from 0."""
    build: Build
    response_class: type[Response]
    on_done: OnDone[Any]
    deadline_ms: int
    versions: tuple[int, int | None]
    """The lowest and the highest API version that the caller of `send` allows."""
    expects_response: bool
    """False for Produce with acks=0: the request is done once its bytes are sent, with an empty
    response."""
    call: Call[Response] | None = None
    error: KlogError | None = None

    @property
    def is_done(self) -> bool:
        return self.error is not None or (self.call is not None and self.call.is_done)

    @property
    def name(self) -> str:
        return self.response_class.api_key.name

    def call_back(self) -> None:
        """Call the callback, exactly once, after the request was taken out of its queue."""
        call = self.call
        if self.error is not None or call is None:
            self.on_done(None, self.error)
        else:
            self.on_done(call.response, call.error)
