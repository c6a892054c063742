"""Matches clients' regular expressions in time linear in the length of the text.

Python's `re` backtracks, so a short expression can block the broker for years. This module follows
all alternatives at once (Thompson's construction). The common part of Java's syntax is supported,
without lookaround, back references and named character classes.
"""

from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from pyspark_klog.errors import KlogError

MAX_PATTERN_LENGTH = 256
MAX_STATES = 1_000
MAX_DEPTH = 50
_STEPS_AN_ELEMENT = 20
_LAST_CHARACTER = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]

_DIGITS: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 13), (32, 32))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12}
_SPECIAL = frozenset("()[]{}|*+?.^$\\")


class InvalidPattern(KlogError):
    """The text is not a regular expression, or uses syntax that this module does not support."""


class _State(NamedTuple):
    """A state of a pattern's automaton: consumes one character in ``ranges`` (None: no character)
    and leads to the states ``following``."""

    ranges: Ranges | None
    following: list[int]


# A function for one part of a regular expression. Adds to the pattern's automaton the states that
# match the part and then lead to the state in the second argument. Returns the state in which the
# part begins.
_Part = Callable[["LinearPattern", int], int]


class LinearPattern:
    """One regular expression. Like Java's Matcher.matches, it has to match the whole text."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN_LENGTH:
            raise InvalidPattern(f"the pattern is longer than {MAX_PATTERN_LENGTH} characters")
        self._states: list[_State] = []
        self._times = 0
        part = _Parser(text).all()
        self._end = self.state(None)
        self._start = part(self, self._end)

    def state(self, ranges: Ranges | None, *following: int) -> int:
        if len(self._states) == MAX_STATES:
            raise InvalidPattern(f"the pattern needs more than {MAX_STATES} states")
        self._states.append(_State(ranges, list(following)))
        return len(self._states) - 1

    def once_more(self) -> None:
        """Count one more copy of a repeated part, such as each x of ``x{3}``. An empty part, such
        as a group (), has no states but is counted too, since each copy costs time."""
        self._times += 1
        if self._times > MAX_STATES:
            raise InvalidPattern(f"the pattern repeats more than {MAX_STATES} parts")

    def add_alternative(self, state: int, following: int) -> None:
        """Let ``state``, a state of the automaton that consumes no character, also lead to the
        state ``following``."""
        self._states[state].following.append(following)

    def matches(self, text: str) -> Generator[int, None, bool]:
        """Return whether the pattern matches ``text``; yield the cost of each character in units of
        about 5 us of the event loop's time (runtime/event_loop/slices.py)."""
        states, reached = self._states, self._reached([self._start])
        for character in map(ord, text):
            yield 1 + len(reached) // _STEPS_AN_ELEMENT
            reached = self._reached(
                following
                for ranges, ways in (states[each] for each in reached)
                if ranges is not None and _has(ranges, character)
                for following in ways
            )
            if not reached:
                return False
        return self._end in reached

    def _reached(self, first: Iterable[int]) -> dict[int, None]:
        """Return the states ``first``, and all states that the automaton can reach from ``first``
        without consuming a character."""
        found = dict.fromkeys(first)
        waiting = list(found)
        while waiting:
            ranges, ways = self._states[waiting.pop()]
            if ranges is None:
                new = [each for each in ways if each not in found]
                found.update(dict.fromkeys(new))
                waiting += new
        return found


def _has(ranges: Ranges, character: int) -> bool:
    return any(first <= character <= last for first, last in ranges)


def _besides(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for first, last in sorted(ranges):
        if start < first:
            found.append((start, first - 1))
        start = max(start, last + 1)
    if start <= _LAST_CHARACTER:
        found.append((start, _LAST_CHARACTER))
    return tuple(found)


_ANY = _besides(((10, 10), (13, 13), (0x85, 0x85), (0x2028, 0x2029)))


def _one(ranges: Ranges) -> _Part:
    return lambda pattern, following: pattern.state(ranges, following)


def _in_order(parts: list[_Part]) -> _Part:
    def add(pattern: LinearPattern, following: int) -> int:
        for part in reversed(parts):
            following = part(pattern, following)
        return following

    return add


def _either(parts: list[_Part]) -> _Part:
    return lambda pattern, following: pattern.state(
        None, *(part(pattern, following) for part in parts)
    )


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    def add(pattern: LinearPattern, following: int) -> int:
        if most is None:
            again = pattern.state(None, following)
            pattern.add_alternative(again, part(pattern, again))
            start = again
        else:
            start = following
            for _ in range(most - least):
                pattern.once_more()
                start = pattern.state(None, part(pattern, start), following)
        for _ in range(least):
            pattern.once_more()
            start = part(pattern, start)
        return start

    return add


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def all(self) -> _Part:
        part = self._choice()
        if self._at < len(self._text):
            raise InvalidPattern(f"the pattern has a {self._text[self._at]!r} too many")
        return part

    def _next(self) -> str:
        """Return the next character without consuming it, or an empty string at the end."""
        return self._text[self._at : self._at + 1]

    def _take(self, what: str = "") -> str:
        taken = self._next()
        if not taken or (what and taken != what):
            raise InvalidPattern(f"{what or 'something'!r} is missing in the pattern")
        self._at += 1
        return taken

    def _choice(self) -> _Part:
        parts = [self._sequence()]
        while self._next() == "|":
            self._take()
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _either(parts)

    def _sequence(self) -> _Part:
        parts = []
        while self._next() and self._next() not in "|)":
            parts.append(self._counted(self._single()))
        return _in_order(parts)

    def _single(self) -> _Part:
        taken = self._take()
        if taken == "(":
            return self._group()
        if taken == "[":
            return _one(self._set())
        if taken == ".":
            return _one(_ANY)
        if taken == "\\":
            return _one(self._escaped())
        if taken == "^" and self._at == 1:
            return _in_order([])
        if taken == "$" and self._at == len(self._text):
            return _in_order([])
        if taken in _SPECIAL and taken not in "]}":
            raise InvalidPattern(f"a {taken!r} is not allowed at its position in the pattern")
        return _one(((ord(taken), ord(taken)),))

    def _group(self) -> _Part:
        if self._next() == "?":
            self._take()
            self._take(":")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern(f"the pattern has more than {MAX_DEPTH} nested groups")
        part = self._choice()
        self._depth -= 1
        self._take(")")
        return part

    def _escaped(self) -> Ranges:
        taken = self._take()
        if taken.lower() in _CLASSES:
            ranges = _CLASSES[taken.lower()]
            return ranges if taken.islower() else _besides(ranges)
        if taken in _CONTROLS:
            return ((_CONTROLS[taken], _CONTROLS[taken]),)
        if taken.isalnum():
            raise InvalidPattern(f"\\{taken} is not supported")
        return ((ord(taken), ord(taken)),)

    def _set(self) -> Ranges:
        is_negated = self._next() == "^"
        if is_negated:
            self._take()
        found: list[tuple[int, int]] = []
        while self._next() != "]" or not found:
            first = self._of_set()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._take()
                last = self._of_set()
                if len(first) > 1 or len(last) > 1 or first[0][0] > last[0][1]:
                    raise InvalidPattern("a range in [] is reversed, or one of its ends is a class")
                first = ((first[0][0], last[0][1]),)
            found += first
        self._take("]")
        return _besides(tuple(found)) if is_negated else tuple(found)

    def _of_set(self) -> Ranges:
        taken = self._take()
        if taken == "\\":
            return self._escaped()
        if taken in "[&":
            raise InvalidPattern(f"{taken} within [] is not supported")
        return ((ord(taken), ord(taken)),)

    def _counted(self, part: _Part) -> _Part:
        sign = self._next()
        if not sign or sign not in "*+?{":
            return part
        self._take()
        if sign == "{":
            part = _repeated(part, *self._bounds())
        else:
            part = _repeated(part, sign == "+", 1 if sign == "?" else None)
        if self._next() == "?":
            # Skip the ? of a reluctant quantifier, such as ``a+?``: it matches the same whole texts
            # as the greedy ``a+``.
            self._take()
        # A second quantifier, such as Java's possessive ones, is refused, because no part of an
        # expression can begin with a quantifier.
        return part

    def _bounds(self) -> tuple[int, int | None]:
        least = self._number()
        most: int | None = least
        if self._next() == ",":
            self._take()
            most = None if self._next() == "}" else self._number()
        self._take("}")
        if most is not None and most < least:
            raise InvalidPattern("the upper bound of a repetition {m,n} is below the lower bound")
        return least, most

    def _number(self) -> int:
        digits = ""
        while self._next().isdecimal():
            digits += self._take()
        if not digits or int(digits) > MAX_STATES:
            raise InvalidPattern("a bound of a repetition {m,n} is missing or too large")
        return int(digits)
