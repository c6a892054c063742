"""subscribePattern in Java's syntax: what is translated, and what is refused and how.

The translation is held against Java's own in tests/spark/test_parity_source_options.py.
"""

import re

import pytest

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.java_characters import ASCII, POSIX, property_set
from pyspark_klog.spark.options.java_regex import compile_java

_NAMES = ["a", "B", "z9", "orders-eu", "orders.us", "Orders_1", "__consumer_offsets", "k--k"]


def _matches(pattern: str, names: list[str] | None = None) -> list[str]:
    compiled = compile_java(pattern)
    return [name for name in (names or _NAMES) if compiled.fullmatch(name)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", []),
        ("orders.*", ["orders-eu", "orders.us"]),
        (r"orders\..*|a", ["a", "orders.us"]),
        ("(?i)ORDERS.*", ["orders-eu", "orders.us", "Orders_1"]),
        ("(?i:o)rders.*", ["orders-eu", "orders.us", "Orders_1"]),
        ("(?i)o(?-i)rders.*", ["orders-eu", "orders.us", "Orders_1"]),
        ("(?i)O(?-i)RDERS.*", []),
        ("(?i)[^a-z]", []),
        ("[^a-z]", ["B"]),
        (r"\p{Alpha}", ["a", "B"]),
        (r"\p{Lower}\d", ["z9"]),
        (r"\P{Lower}", ["B"]),
        (r"(?i)\p{Lower}", ["a", "B"]),
        (r"\pL\p{Nd}", ["z9"]),
        (r"\p{IsAlphabetic}+\p{Punct}\p{javaLowerCase}+", ["orders-eu", "orders.us"]),
        (r"[a-z&&[^b-z]]", ["a"]),
        (r"[a-z&&[^a]]\p{IsDigit}", ["z9"]),
        (r"[\w&&[^\d_]]+[.\-][a-z[0-9]]+", ["orders-eu", "orders.us"]),
        (r"[]a]", ["a"]),
        (r"[a-]", ["a"]),
        (r"\Qorders.us\E", ["orders.us"]),
        (r"\Qorders.\E\w+", ["orders.us"]),
        (r"[\Qz.\E]\d", ["z9"]),
        (r"\x61|\u0042|\x{7a}\0071", ["a", "B", "z9"]),
        (r"(?<first>.)--\k<first>", ["k--k"]),
        (r"(.)(.)\2\1", ["k--k"]),
        (r"(?x) orders \. us # the comment", ["orders.us"]),
        (r"(?=o)\w+-eu", ["orders-eu"]),
        (r"(?!o)[a-z]\S+", ["z9", "k--k"]),
        (r".*(?<=-)eu", ["orders-eu"]),
        (r"(?>a|ab)b", []),
        (r"\w++s", []),
        (r"\w*?s.us", ["orders.us"]),
        (r"\w{6}\p{IsPunctuation}\w{2,}", ["orders-eu", "orders.us"]),
        (r"^a$", ["a"]),
        (r"\Aa\z", ["a"]),
        (r"(?U)\w\d", ["z9"]),
        (r"__.*", ["__consumer_offsets"]),
    ],
)
def test_names_that_match(pattern: str, expected: list[str]) -> None:
    assert _matches(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a", "a group is not closed; expected )"),
        ("a)", "a closing ) without an opening one"),
        ("*a", "nothing for * to repeat"),
        ("a{x}", "{ has no number, or nothing to repeat; write \\{ for the character"),
        ("[a", "a class is not closed; expected ]"),
        ("[a&&]", "a class has nothing before or after &&"),
        ("[z-a]", "the range z-a is backwards"),
        (r"\p{Klingon}", "klog does not know the property 'Klingon'"),
        (r"\p{Alpha", "a property is not closed"),
        (r"\X", "Java does not have \\X, or Python cannot express it"),
        (r"\y", "Java does not have \\y, or Python cannot"),
        (r"\b{g}", "\\b{...} has no counterpart"),
        (r"\x4", "the octal or hexadecimal number of a character is expected"),
        ("(?P<n>a)", "(? is not followed by one of Java's kinds of groups"),
        ("(?<1>a)", "a group's name is expected"),
        ("a\\", "the pattern ends where an escaped character is expected"),
        (r"(?<=a+)b", "cannot translate from Java's regular expressions: look-behind requires"),
        (r"(a)\2", "cannot translate from Java's regular expressions: invalid group reference"),
        (r"(a)\1++", "a reference to a group and a possessive quantifier"),
        ("a" * 3 + "{2}{3}", "{ has no number, or nothing to repeat"),
        ("a{99999999999}", "cannot translate"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(pattern: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        compile_java(pattern)
    assert f"subscribePattern is {pattern!r}" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_properties_are_sets_of_ascii() -> None:
    names = [*POSIX, "L", "Lu", "IsL", "IsLu", "gc=Nd", "sc=Latin", "InBasicLatin", "IsPunctuation"]
    for name in names:
        found = property_set(name)
        assert found is not None and found <= ASCII, name
    assert property_set("Lt") == property_set("IsLt") == frozenset()
    for name in ("", "Lx", "X", "IsGreek", "InGreek", "sc=Greek", "x=y"):
        assert property_set(name) is None


def test_patterns_are_compiled_for_ascii() -> None:
    assert compile_java("a").flags & re.ASCII
