"""Splits the responses to one connection's acks=all requests by the requests' timeouts. Pure.

The responses are those of one produce plan, in which the compiled kernel serves many requests of an
event-loop turn together. Usually all requests of a client have the same timeout, and the responses
wait together until the batches are replicated. If the timeouts differ (librdkafka has one for each
topic), the responses wait separately. With a common wait, a request with a long timeout
would get the error REQUEST_TIMED_OUT as soon as the shorter timeout of an earlier request has
passed.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from klog_broker.produce.tables import DelayedBatch

_SIZE_BYTES = 4


class ResponsePart(NamedTuple):
    """Consecutive responses that are sent together, when the delayed batches (``held``, of acks=all
    requests) are replicated. The requests of these batches have the same timeout."""

    held: Sequence[DelayedBatch]
    start: int
    stop: int
    requests: int


def split_responses(
    responses: memoryview, held: Sequence[DelayedBatch], start: int, stop: int, requests: int
) -> Sequence[ResponsePart]:
    """Split the bytes of ``responses`` from ``start`` to ``stop``, which are one connection's
    responses as whole frames.

    ``requests`` is the number of requests that these responses answer, plus the number of the
    connection's requests with acks=0 that the same produce plan (one run of the compiled kernel)
    has served. Requests with acks=0 have no response, and count for the last part. ``held`` must
    not be empty, and must have the batches in the order of the responses.
    """
    if len({each.timeout_ms for each in held}) == 1:
        return (ResponsePart(held, start, stop, requests),)
    parts: list[ResponsePart] = []
    left = deque(held)
    waiting: list[DelayedBatch] = []
    begin = at = start
    count = 0
    while at < stop:
        end = at + _SIZE_BYTES + int.from_bytes(responses[at : at + _SIZE_BYTES], "big")
        if left and left[0].error_code_at < end:
            if waiting and waiting[0].timeout_ms != left[0].timeout_ms:
                parts.append(ResponsePart(waiting, begin, at, count))
                waiting, begin, count = [], at, 0
            while left and left[0].error_code_at < end:
                waiting.append(left.popleft())
        count += 1
        at = end
    rest = requests - sum(each.requests for each in parts)
    return (*parts, ResponsePart(waiting, begin, stop, rest))
