"""Patterns of clients match what Python's own match, and never take long."""

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.api.linear_patterns import (
    MAX_PATTERN_LENGTH,
    InvalidPattern,
    LinearPattern,
)


def matches(pattern: str, text: str) -> bool:
    steps = LinearPattern(pattern).matches(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


ATOMS = st.sampled_from(
    ["a", "b", "-", ".", r"\.", r"\d", r"\W", "[ab]", "[^a]", "[a-c0-9]", "[-a]", "[]a]", r"[\d_]"]
)
COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,1}", "{2,}", "*?", "+?"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, COUNTS).map(lambda two: f"({two[0]}){two[1]}"),
    )


PATTERNS = st.recursive(st.tuples(ATOMS, COUNTS).map("".join), _larger, max_leaves=6)
TEXTS = st.text("abc-.0_ ", max_size=8)


@settings(max_examples=500)
@given(PATTERNS.filter(lambda each: len(each) <= MAX_PATTERN_LENGTH), TEXTS)
def test_they_match_what_pythons_match(pattern: str, text: str) -> None:
    assert matches(pattern, text) == (re.fullmatch(pattern, text) is not None)
    assert matches(f"^{pattern}$", text) == matches(pattern, text)


@given(st.text("ab(|)[]{}*+?\\^$.,-3&", max_size=30), TEXTS)
def test_any_text_is_an_expression_or_refused(pattern: str, text: str) -> None:
    with contextlib.suppress(InvalidPattern):
        matches(pattern, text)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(a?){300}b"])
def test_what_would_take_others_for_ever_takes_steps_in_the_texts_length(pattern: str) -> None:
    steps = LinearPattern(pattern).matches("a" * 2_000)
    assert sum(1 for _ in steps) <= 2_000


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", "a)", "[a", "*a", "a{", "a{2,1}", "(?=a)", r"\1", r"\p{L}", "a++", "[b-a]", "[[a]]"),
        *("(a{900}){900}", "((){900}){900}", "(" * 200 + ")" * 50, "a{99999999999}", "a**"),
        *("x" * (MAX_PATTERN_LENGTH + 1), "\\"),
    ],
)
def test_what_is_no_expression_or_looks_around_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        LinearPattern(pattern)
