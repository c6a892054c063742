"""Encodes the response to a request, and puts it into the request's place in the connection's queue
of responses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from klog_broker.dispatch.request_context import ResponseSteps
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.dispatch.response_errors import error_codes
from klog_broker.dispatch.response_slot import ResponseSlot
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.protocol.headers import (
    RequestHeader,
    encode_response_in_steps,
    encode_response_parts,
)
from pyspark_klog.protocol.message import Response

# A response that takes less work than this, in units of about 5 us (elements, slices.py), is made
# and encoded at once: spreading the work over several event-loop turns would be slower.
_FEW_ELEMENTS = 16
_ENCODED_ELEMENTS_A_STEP = 8
_COUNTED_ELEMENTS_A_STEP = 32


class EncodedResponse:
    """The ResponseSink of one request: encodes the response, and fills the request's place in the
    connection's queue of responses (``slot``)."""

    __slots__ = ("_header", "_runtime", "_slot", "is_used")

    def __init__(self, slot: ResponseSlot, header: RequestHeader, runtime: RequestRuntime) -> None:
        self._slot = slot
        self._header = header
        self._runtime = runtime
        self.is_used = False

    @property
    def is_open(self) -> bool:
        return self._slot.is_open

    def send(self, response: Response) -> None:
        header = self._header
        self.is_used = True
        parts: list[Any] = []
        if self._slot.is_open:
            try:
                parts = encode_response_parts(header.correlation_id, response, header.api_version)
            except Exception as error:
                # Do not raise: the caller may be the purgatory, which does not handle exceptions.
                self._close_for_bug(response, error)
                return
            for code in error_codes(response):
                if code:
                    self._runtime.count_error(header.api_key, code)
        self._slot.complete(parts)

    def send_parts(self, parts: list[Any]) -> None:
        self.is_used = True
        self._slot.complete(parts)

    def send_early(self) -> None:
        self._slot.send_early()

    def send_in_slices(self, steps: ResponseSteps) -> None:
        try:
            is_over, response, spent = first_steps(steps)
        except Exception as error:
            self._close_for_bug(None, error)
            return
        if not is_over:
            self._runtime.slices.run(self._work(steps), lambda: self._slot.is_open, spent)
        elif response is not None:
            self.send(response)

    def _work(self, steps: ResponseSteps) -> Steps:
        """Run the steps that make the response, then encode the response in further steps. Send
        nothing if the steps return None."""
        response: Response | None = None
        try:
            response = yield from steps
            if response is None:
                return
            self.is_used = True
            header = self._header
            encoding = encode_response_in_steps(header.correlation_id, response, header.api_version)
            parts: list[Any] = yield from thinned(encoding, _ENCODED_ELEMENTS_A_STEP)
            yield from self._count_errors(response)
        except Exception as error:
            self._close_for_bug(response, error)
            return
        self._slot.complete(parts)

    def _count_errors(self, response: Response) -> Steps:
        api_key, count_error = self._header.api_key, self._runtime.count_error
        for number, code in enumerate(error_codes(response), 1):
            if code:
                count_error(api_key, code)
            if number % _COUNTED_ELEMENTS_A_STEP == 0:
                yield 1

    def _close_for_bug(self, response: Response | None, error: Exception) -> None:
        self.is_used = True
        name = "a response" if response is None else type(response).__name__
        self._runtime.bugs.report(f"{name} v{self._header.api_version}", error)
        self._slot.close("an internal error: the response cannot be encoded")

    def skip(self) -> None:
        self.is_used = True
        self._slot.skip()

    def close(self, reason: str) -> None:
        self.is_used = True
        self._slot.close(reason)

    def when_closed(self, callback: Callable[[], None]) -> None:
        self._slot.when_closed(callback)

    def hold(self) -> bool:
        return self._slot.hold()


def first_steps(steps: ResponseSteps) -> tuple[bool, Response | None, int]:
    """Run the first steps that make a response, for about 80 us (_FEW_ELEMENTS). Returns whether
    the steps have ended, and if so, the response that they returned; and the cost of the steps that
    were run, in units of about 5 us."""
    spent = 0
    try:
        while spent < _FEW_ELEMENTS:
            spent += next(steps)
    except StopIteration as end:
        return True, end.value, spent
    return False, None, spent


def thinned(steps: Iterator[None], elements_a_step: int) -> Generator[int, None, Any]:
    """Combine each `elements_a_step` steps into one step with the cost 1, in units of about 5 us
    (the time to look a partition up). Each step of `steps` encodes or decodes one element of a
    message, which takes less. Returns what `steps` return."""
    try:
        while True:
            for _ in range(elements_a_step):
                next(steps)
            yield 1
    except StopIteration as end:
        return end.value
