"""A small part of PromQL: the forms that klog's alert rules use; every other form is refused.

An expression consists of numbers, selectors (``name{label="value",label=~"regex"}[5m]``), the
operators ``and``, ``== != > < >= <= + - * /`` between instant vectors and numbers (vectors are
matched by all their labels), ``sum by (labels) (...)``, ``rate``, ``increase``,
``histogram_quantile``, ``abs`` and ``timestamp``.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = Vector | float
Points = Sequence[tuple[float, float]]

_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\])*\")|(?P<duration>\d+[smhd](?![A-Za-z0-9_]))"
    r"|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"|(?P<sign>=~|==|!=|>=|<=|[-+*/<>=(){}\[\],]))"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else math.nan,
}
# Operators by precedence, the weakest first.
_LEVELS = (("and",), tuple(_COMPARISONS), ("+", "-"), ("*", "/"))
_FUNCTIONS = ("rate", "increase", "histogram_quantile", "abs", "timestamp")


class UnsupportedPromql(Exception):
    """The expression has a form that this module does not evaluate."""


class SeriesStore(Protocol):
    """Samples of many series over time."""

    def instant(self, name: str, at_s: float) -> Mapping[Labels, tuple[float, float]]:
        """Return the time and the value of the newest sample of each series with this name that is
        not stale at this time."""

    def range(self, name: str, since_s: float, at_s: float) -> Mapping[Labels, Points]:
        """Return the samples of each series with this name after `since_s`, up to `at_s`."""


class Node(NamedTuple):
    """A node of an expression's tree: an operator, a function, a selector or a number."""

    kind: str
    text: str
    children: tuple[Node, ...] = ()
    matchers: tuple[tuple[str, str, str], ...] = ()
    range_s: float = 0
    by: tuple[str, ...] = ()


def parse(text: str) -> Node:
    """Return the tree of an expression; raise UnsupportedPromql for a form that is not supported
    here."""
    parser = _Parser(text)
    node = parser.binary(0)
    if parser.peek():
        raise UnsupportedPromql(f"{parser.peek()!r} is not supported in {text}")
    return node


def names(node: Node) -> Iterator[str]:
    """Yield the names of the metrics in an expression."""
    if node.kind == "selector":
        yield node.text
    for child in node.children:
        yield from names(child)


def evaluate(node: Node, store: SeriesStore, at_s: float) -> Value:
    """Return the value of an expression at a time."""
    match node.kind:
        case "number":
            return float(node.text)
        case "selector":
            if node.range_s:
                raise UnsupportedPromql(f"a range of {node.text} is not supported here")
            found = _selected(node, store.instant(node.text, at_s))
            return {of: value for of, (_, value) in found.items()}
        case "sum":
            return _sum(_vector(node.children[0], store, at_s), node.by)
        case "function":
            return _call(node, store, at_s)
    return _binary(node, store, at_s)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            token = _TOKEN.match(text, at)
            if token is None or token.lastgroup is None:
                raise UnsupportedPromql(f"{text[at:]!r} is not supported")
            self._tokens.append((token.lastgroup, token[token.lastgroup]))
            at = token.end()

    def peek(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._operand()
        node = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            sign = self._take()
            if self.peek() in ("on", "ignoring", "bool"):
                raise UnsupportedPromql(f"{self.peek()!r} is not supported in {self._text}")
            node = Node("binary", sign, (node, self.binary(level + 1)))
        return node

    def _operand(self) -> Node:
        if not self._tokens:
            raise UnsupportedPromql(f"{self._text} ends too early")
        kind, text = self._tokens.pop(0)
        if text == "(":
            node = self.binary(0)
            self._expect(")")
            return node
        if kind == "number":
            return Node("number", text)
        if kind != "word":
            raise UnsupportedPromql(f"{text!r} is not supported in {self._text}")
        if text == "sum":
            by = self._labels() if self.peek() == "by" else ()
            self._expect("(")
            node = Node("sum", "sum", (self.binary(0),), by=by)
            self._expect(")")
            return node
        if self.peek() == "(":
            if text not in _FUNCTIONS:
                raise UnsupportedPromql(f"{text}() is not supported")
            return self._function(text)
        return self._selector(text)

    def _function(self, name: str) -> Node:
        self._expect("(")
        children = [self.binary(0)]
        while self.peek() == ",":
            self._take()
            children.append(self.binary(0))
        self._expect(")")
        return Node("function", name, tuple(children))

    def _selector(self, name: str) -> Node:
        matchers: list[tuple[str, str, str]] = []
        range_s = 0.0
        if self.peek() == "{":
            while self._take() in "{,":
                label, sign, value = self._take(), self._take(), self._take()
                if sign not in ("=", "=~") or not value.startswith('"'):
                    raise UnsupportedPromql(f"{label}{sign}{value} is not supported")
                matchers.append((label, sign, value[1:-1]))
        if self.peek() == "[":
            self._take()
            duration = self._take()
            range_s = int(duration[:-1]) * _SECONDS[duration[-1]]
            self._expect("]")
        return Node("selector", name, matchers=tuple(matchers), range_s=range_s)

    def _labels(self) -> tuple[str, ...]:
        self._take()
        found = []
        self._expect("(")
        while self.peek() != ")":
            found.append(self._take())
            if self.peek() == ",":
                self._take()
        self._expect(")")
        return tuple(found)

    def _take(self) -> str:
        if not self._tokens:
            raise UnsupportedPromql(f"{self._text} ends too early")
        return self._tokens.pop(0)[1]

    def _expect(self, text: str) -> None:
        if self._take() != text:
            raise UnsupportedPromql(f"{text} was expected in {self._text}")


def _selected(node: Node, series: Mapping[Labels, T]) -> dict[Labels, T]:
    return {of: found for of, found in series.items() if _matches(node.matchers, dict(of))}


def _matches(matchers: Sequence[tuple[str, str, str]], labels: Mapping[str, str]) -> bool:
    for label, sign, value in matchers:
        found = labels.get(label, "")
        if not (re.fullmatch(value, found) if sign == "=~" else found == value):
            return False
    return True


def _vector(node: Node, store: SeriesStore, at_s: float) -> Vector:
    found = evaluate(node, store, at_s)
    if isinstance(found, float):
        raise UnsupportedPromql(f"a vector was expected, not the number {found}")
    return found


def _sum(vector: Vector, by: Sequence[str]) -> Vector:
    sums: Vector = {}
    for labels, value in vector.items():
        kept = frozenset(each for each in labels if each[0] in by)
        sums[kept] = sums.get(kept, 0) + value
    return sums


def _call(node: Node, store: SeriesStore, at_s: float) -> Vector:
    match node.text, node.children:
        case "abs", (vector,):
            return {of: abs(value) for of, value in _vector(vector, store, at_s).items()}
        case "timestamp", (Node("selector") as selector,):
            found = _selected(selector, store.instant(selector.text, at_s))
            return {of: time_s for of, (time_s, _) in found.items()}
        case "histogram_quantile", (Node("number", quantile), buckets):
            return _quantiles(float(quantile), _vector(buckets, store, at_s))
        case (("rate" | "increase"), (Node("selector") as selector,)) if selector.range_s:
            since_s = at_s - selector.range_s
            series = _selected(selector, store.range(selector.text, since_s, at_s))
            each_s = 1.0 if node.text == "rate" else selector.range_s
            return {of: _slope(points) * each_s for of, points in series.items() if len(points) > 1}
    raise UnsupportedPromql(f"{node.text}() is not supported with these arguments")


def _slope(points: Points) -> float:
    """Return the increase of a counter for each second. A lower value than before is a restart of
    the counter at 0. Prometheus also extrapolates to the ends of the range, which changes no sign
    and hardly any rate."""
    total, last = 0.0, points[0][1]
    for _, value in points[1:]:
        total += value - last if value >= last else value
        last = value
    return total / (points[-1][0] - points[0][0])


def _quantiles(quantile: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in buckets.items():
        bound = float(dict(labels)["le"])
        rest = frozenset(each for each in labels if each[0] != "le")
        groups.setdefault(rest, []).append((bound, value))
    return {of: _quantile(quantile, sorted(each)) for of, each in groups.items()}


def _quantile(quantile: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Return the quantile by linear interpolation in its bucket; the last finite bound if it is in
    the last bucket."""
    total = buckets[-1][1]
    if not total:
        return math.nan
    rank = quantile * total
    lower_bound = below = 0.0
    for bound, count in buckets:
        if count >= rank:
            if math.isinf(bound):
                return lower_bound
            return lower_bound + (bound - lower_bound) * (rank - below) / (count - below)
        lower_bound, below = bound, count
    return math.nan


def _binary(node: Node, store: SeriesStore, at_s: float) -> Value:
    left, right = (evaluate(each, store, at_s) for each in node.children)
    sign = node.text
    if sign == "and":
        if isinstance(left, float) or isinstance(right, float):
            raise UnsupportedPromql("`and` of a number is not supported")
        return {of: value for of, value in left.items() if of in right}
    if isinstance(left, float):
        raise UnsupportedPromql(f"a number left of {sign} is not supported")
    pairs = (
        {of: (value, right) for of, value in left.items()}
        if isinstance(right, float)
        else {of: (value, right[of]) for of, value in left.items() if of in right}
    )
    if sign in _COMPARISONS:
        return {of: pair[0] for of, pair in pairs.items() if _COMPARISONS[sign](*pair)}
    return {of: _ARITHMETIC[sign](*pair) for of, pair in pairs.items()}
