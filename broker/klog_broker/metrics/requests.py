"""Counts and durations of answered requests, by API and version, and durations of loop turns.

A request's duration starts with the event-loop turn in which the request was passed to its handler
or to the produce kernel, usually the turn in which its last byte was received. The duration ends
with the turn in which the response is handed to the socket, or is queued behind earlier responses
of the connection: the time that a slow client takes to read does not count. A request that is
passed to its handler and answered in one turn has the duration of that turn, so that each turn
reads the clock once for all its requests.

The *head* of a request is its API key and version in one number: the API key in the upper 16 bits,
the version in the lower 16 bits, like the first four bytes of the request after its size.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from klog_broker.metrics.histogram import BOUNDS_NS, SUM, new_row

_FIRST_BOUND_NS = BOUNDS_NS[0]
_VERSION_BITS = 16
_VERSION = (1 << _VERSION_BITS) - 1
IN_THIS_TURN = -1
NOT_SERVED = _VERSION
"""The version under which all unserved versions of an API are counted. Only ApiVersions is answered
in an unserved version."""


def head_of(api_key: int, version: int) -> int:
    """Return a request's head: its API key and version in one number, in this order."""
    return (api_key << _VERSION_BITS) | (version & _VERSION)


def api_and_version(head: int) -> tuple[int, int]:
    """Return the API key and the version in a request's head, the number that `head_of` returns."""
    return head >> _VERSION_BITS, head & _VERSION


class RequestTimes:
    """The request and event-loop turn durations of one broker. Loop thread only.

    ``is_served`` says whether the broker serves an API in a version. All unserved versions of an
    API share one histogram row: clients choose the version of a request, and could otherwise create
    any number of rows.
    """

    def __init__(self, is_served: Callable[[int, int], bool]) -> None:
        self.answered: list[int] = []
        """The API key and version, in one number (`head_of`), of each request that was both passed
        to its handler and answered in this event-loop turn. Connections keep a reference to this
        list and append to it, so the list is never replaced."""
        self.answered_later: list[tuple[int, int, int]] = []
        """Requests that were answered in this event-loop turn and are not in ``answered``, in
        groups: (API key and version in one number, number of requests, time (ns) of the turn that
        passed the requests to their handler or to the produce kernel). The time is IN_THIS_TURN if
        that was this turn."""
        self.turns: list[int] = new_row()
        self._rows: dict[int, list[int]] = {}
        self._is_served = is_served

    @property
    def rows(self) -> Mapping[int, Sequence[int]]:
        """The bucket counts and the sum of the durations (histogram.new_row), by the API key and
        version in one number (`head_of`)."""
        return self._rows

    def count_turn(self, began_ns: int, ended_ns: int) -> None:
        """Count the finished event-loop turn and every request that was answered in the turn."""
        took_ns = ended_ns - began_ns
        place = 0 if took_ns <= _FIRST_BOUND_NS else bisect_left(BOUNDS_NS, took_ns)
        turns = self.turns
        turns[place] += 1
        turns[SUM] += took_ns
        answered = self.answered
        if answered:
            # With few clients, an event-loop turn usually answers one request, so that no counting
            # of requests by API and version is needed.
            head = answered.pop()
            count = 1
            if answered:
                count += answered.count(head)
                if count <= len(answered):
                    for other, its_count in Counter(answered).items():
                        if other != head:
                            self._add(other, its_count, place, took_ns)
                answered.clear()
            row = self._rows.get(head) or self._new_row(head)
            row[place] += count
            row[SUM] += count * took_ns
        if self.answered_later:
            for head, count, since_ns in self.answered_later:
                took_ns = ended_ns - (began_ns if since_ns == IN_THIS_TURN else since_ns)
                self._add(head, count, bisect_left(BOUNDS_NS, took_ns), took_ns)
            self.answered_later.clear()

    def _add(self, head: int, count: int, place: int, took_ns: int) -> None:
        row = self._rows.get(head) or self._new_row(head)
        row[place] += count
        row[SUM] += count * took_ns

    def _new_row(self, head: int) -> list[int]:
        api_key, version = api_and_version(head)
        if not self._is_served(api_key, version):
            head = head_of(api_key, NOT_SERVED)
        return self._rows.setdefault(head, new_row())
