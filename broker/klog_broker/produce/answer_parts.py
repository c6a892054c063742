"""A connection's answers in one plan, apart where its requests may wait for different times. Pure.

Nearly always one client asks for one time, and all of its answers wait together. Where it does not
(librdkafka has a time a topic) nobody is told REQUEST_TIMED_OUT because of the request in front.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from klog_broker.produce.tables import HeldBatch

_SIZE_BYTES = 4


class AnswerPart(NamedTuple):
    """Answers one behind the other, which wait for ``held`` and for the same time."""

    held: Sequence[HeldBatch]
    start: int
    stop: int
    requests: int


def answer_parts(
    replies: memoryview, held: Sequence[HeldBatch], start: int, stop: int, requests: int
) -> Sequence[AnswerPart]:
    """The answers in ``replies`` from ``start`` to ``stop``, whole frames, of so many requests: the
    last part has those without an answer. ``held`` is not empty, and in the answers' order."""
    if len({each.timeout_ms for each in held}) == 1:
        return (AnswerPart(held, start, stop, requests),)
    parts: list[AnswerPart] = []
    left = deque(held)
    waiting: list[HeldBatch] = []
    begin = at = start
    count = 0
    while at < stop:
        end = at + _SIZE_BYTES + int.from_bytes(replies[at : at + _SIZE_BYTES], "big")
        if left and left[0].answer_at < end:
            if waiting and waiting[0].timeout_ms != left[0].timeout_ms:
                parts.append(AnswerPart(waiting, begin, at, count))
                waiting, begin, count = [], at, 0
            while left and left[0].answer_at < end:
                waiting.append(left.popleft())
        count += 1
        at = end
    rest = requests - sum(each.requests for each in parts)
    return (*parts, AnswerPart(waiting, begin, stop, rest))
