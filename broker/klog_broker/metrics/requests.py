"""How many requests were answered, by API and version, and how long that took; how long turns take.

A request's time is that from the turn in which it had come whole to the end of the turn in which
its answer was given to the socket, or to the line behind earlier answers: what a slow client takes
to read is not the broker's time. All that comes and is answered in one turn has that turn's time,
so that a turn reads the clock once for all of them.

The *head* of a request is its API key and version in one number, as the first four bytes of its
frame are.
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
"""Stands for all versions that are not served: only ApiVersions is answered in such a one."""


def head_of(api_key: int, version: int) -> int:
    """The head of a request of this API and version."""
    return (api_key << _VERSION_BITS) | (version & _VERSION)


def api_and_version(head: int) -> tuple[int, int]:
    """What a head says."""
    return head >> _VERSION_BITS, head & _VERSION


class RequestTimes:
    """Of one broker. ``is_served`` says whether an API is served in a version: no others are told
    apart, since clients choose these numbers. Loop thread only."""

    def __init__(self, is_served: Callable[[int, int], bool]) -> None:
        self.answered: list[int] = []
        """The heads of requests that have come and were answered in this turn. Always the same
        list: connections put their requests in."""
        self.others: list[tuple[int, int, int]] = []
        """The same of others that were answered in this turn: (head, how many, the time (ns) of the
        turn in which they came, or IN_THIS_TURN)."""
        self.turns: list[int] = new_row()
        self._rows: dict[int, list[int]] = {}
        self._is_served = is_served

    @property
    def rows(self) -> Mapping[int, Sequence[int]]:
        """By head, what histogram.new_row has."""
        return self._rows

    def turn_over(self, began_ns: int, ended_ns: int) -> None:
        """A turn is over: all that it has answered counts."""
        took_ns = ended_ns - began_ns
        place = 0 if took_ns <= _FIRST_BOUND_NS else bisect_left(BOUNDS_NS, took_ns)
        turns = self.turns
        turns[place] += 1
        turns[SUM] += took_ns
        answered = self.answered
        if answered:
            # With few clients a turn has one request: then no more is done than this.
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
        if self.others:
            for head, count, since_ns in self.others:
                took_ns = ended_ns - (began_ns if since_ns == IN_THIS_TURN else since_ns)
                self._add(head, count, bisect_left(BOUNDS_NS, took_ns), took_ns)
            self.others.clear()

    def _add(self, head: int, count: int, place: int, took_ns: int) -> None:
        row = self._rows.get(head) or self._new_row(head)
        row[place] += count
        row[SUM] += count * took_ns

    def _new_row(self, head: int) -> list[int]:
        api_key, version = api_and_version(head)
        if not self._is_served(api_key, version):
            head = head_of(api_key, NOT_SERVED)
        return self._rows.setdefault(head, new_row())
