"""Splits a connection's responses in one plan by the timeout of their requests. Pure.

Usually one client sends one timeout, and all its responses wait together. A client with different
timeouts (librdkafka has one for each topic) must not get REQUEST_TIMED_OUT early because of an
earlier request with a shorter timeout.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from klog_broker.produce.tables import DelayedBatch

_SIZE_BYTES = 4


class ResponsePart(NamedTuple):
    """Consecutive responses that wait for the batches ``held`` and have the same timeout."""

    held: Sequence[DelayedBatch]
    start: int
    stop: int
    requests: int


def split_responses(
    replies: memoryview, held: Sequence[DelayedBatch], start: int, stop: int, requests: int
) -> Sequence[ResponsePart]:
    """Split the bytes of ``replies`` from ``start`` to ``stop``, which are whole response frames of
    this many requests. The last part also counts the requests without a response. ``held`` is not
    empty, and in the order of the responses."""
    if len({each.timeout_ms for each in held}) == 1:
        return (ResponsePart(held, start, stop, requests),)
    parts: list[ResponsePart] = []
    left = deque(held)
    waiting: list[DelayedBatch] = []
    begin = at = start
    count = 0
    while at < stop:
        end = at + _SIZE_BYTES + int.from_bytes(replies[at : at + _SIZE_BYTES], "big")
        if left and left[0].answer_at < end:
            if waiting and waiting[0].timeout_ms != left[0].timeout_ms:
                parts.append(ResponsePart(waiting, begin, at, count))
                waiting, begin, count = [], at, 0
            while left and left[0].answer_at < end:
                waiting.append(left.popleft())
        count += 1
        at = end
    rest = requests - sum(each.requests for each in parts)
    return (*parts, ResponsePart(waiting, begin, stop, rest))
