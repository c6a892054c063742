"""Delayed responses to acks=all requests that a produce plan has served (the compiled kernel serves
many connections together): they wait until the followers have the batches.

The kernel has written each response as a success. All responses of one connection to the requests
of one plan wait together if the requests have the same timeout, since they are sent in order
anyway. If a batch gets an error (the leadership ends, too few replicas are in sync, or the timeout
passes), its part of the response is overwritten with the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple, Protocol

from klog_broker.log.segment.planned_append import PlannedLog
from klog_broker.produce.services import PipelineServices
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import ended_code
from klog_broker.runtime.event_loop.purgatory import DelayedOperation
from pyspark_klog.errors import ErrorCode

_CODE = Struct(">h")


class DelayedAppend(NamedTuple):
    """An appended batch whose response is delayed until the high watermark has passed the batch."""

    log: PlannedLog
    end_offset: int
    error_code_at: int
    """The position of the batch's error code in the response."""
    ones: int
    """How many bytes after the error code have to become 0xFF in an error response: its base
    offset, log append time and (from version 5 on) log start offset are -1."""


class ResponsePlace(Protocol):
    """The response's place in its connection's queue of responses."""

    @property
    def began_ns(self) -> int:
        """The time, in nanoseconds, of the event-loop turn in which the response got its place in
        the queue."""

    def complete(self, parts: list[Any]) -> None: ...

    def when_closed(self, callback: Callable[[], None]) -> None: ...


class DelayedResponse(DelayedOperation):
    """The responses of one connection to acks=all requests, sent when each batch is replicated (the
    partition's high watermark has passed the batch) or has failed, such as by the timeout."""

    __slots__ = ("_answer", "_answered", "_place", "_services", "_timeout_ms", "_waiting")
    kind = "Produce"

    def __init__(
        self,
        answer: bytearray,
        waiting: Sequence[tuple[Leader, DelayedAppend]],
        timeout_ms: int,
        services: PipelineServices,
        answered: Callable[[int], None],
    ) -> None:
        """``answered`` is called when the response is sent, with the time (ns) of the event-loop
        turn in which the response got its place in the connection's queue."""
        self._answer = answer
        self._answered = answered
        self._waiting = waiting
        self._timeout_ms = timeout_ms
        self._services = services
        self._place: ResponsePlace | None = None

    @property
    def is_due(self) -> bool:
        """Whether the response is complete: each batch is replicated, or its error is in the
        response."""
        self._settle()
        return not self._waiting

    def wait(self, place: ResponsePlace) -> None:
        """Send the response at ``place`` (in the connection's queue of responses) once each batch
        is replicated or has failed, or when the timeout has passed."""
        self._place = place
        purgatory = self._services.purgatory
        keys = [leader.topic_partition for leader, _ in self._waiting]
        if not purgatory.watch(self, keys, self._timeout_ms):
            place.when_closed(lambda: purgatory.cancel(self))

    def try_complete(self, _now_ms: int) -> bool:
        self._settle()
        if self._waiting:
            return False
        self._send()
        return True

    def on_expire(self, _now_ms: int) -> None:
        for _, append in self._waiting:
            self._fail(append, ErrorCode.REQUEST_TIMED_OUT)
        self._send()

    def _settle(self) -> None:
        still_waiting = []
        for each in self._waiting:
            leader, append = each[0].present, each[1]
            if leader.ended is not None:
                self._fail(append, ended_code(self._services, leader))
            elif leader.log.high_watermark < append.end_offset:
                still_waiting.append(each)
            elif leader.has_too_few_of(append.end_offset):
                self._fail(append, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._waiting = still_waiting

    def _fail(self, append: DelayedAppend, code: ErrorCode) -> None:
        at = append.error_code_at
        _CODE.pack_into(self._answer, at, code)
        at += _CODE.size
        self._answer[at : at + append.ones] = b"\xff" * append.ones

    def _send(self) -> None:
        assert self._place is not None
        self._answered(self._place.began_ns)
        self._place.complete([self._answer])
