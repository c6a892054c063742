"""A row of OPTIONS declares its option: readers and the page of options follow it."""

import pytest

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options import rows
from pyspark_klog.spark.options.exactly_once import ExactlyOnce
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.options.values import (
    LONG_MAX,
    Choice,
    Duration,
    Flag,
    IdPart,
    Text,
    Timestamp,
    WholeNumber,
    Words,
)
from tools.docs.options import options_page

_KINDS = [row for row in rows.OPTIONS if not isinstance(row.kind, str)]
_BEFORE = {"kafka.bootstrap.servers": "h:1"}


def _needed(row: rows.Option) -> dict[str, str]:
    """The options without which ``row`` cannot be given or has no effect."""
    if row.name == "committedOffsetsMissing":
        return {**_BEFORE, "startingOffsets": "committed", "commitGroupId": "g"}
    if row.name.startswith("exactlyOnce") and row.name != "exactlyOnce":
        return {**_BEFORE, "exactlyOnce": "true"}
    return _BEFORE


def _read(options: dict[str, str]) -> Options:
    found = read_options(options).for_batch()
    object.__setattr__(found, "limits", ())  # the names that were given
    return found


def _allowed(row: rows.Option) -> list[str]:
    match row.kind:
        case Flag():
            return ["true", "false"]
        case Choice(words):
            return list(words)
        case WholeNumber(low, high):
            return [str(low), str(high)]
        case Words(known):
            return [",".join(known), known[-1]]
        case Duration():
            return ["0", "7s"]
        case Timestamp():
            return ["0", str(LONG_MAX)]
        case Text():
            return ["a b"]
        case IdPart(may_have_dots):
            return ["n" * 100, "a.b" if may_have_dots else "a_b"]
    raise AssertionError(row)


def _refused(row: rows.Option) -> list[str]:
    match row.kind:
        case WholeNumber(low, high):
            return [str(low - 1), str(high + 1), "", "x"]
        case Timestamp():
            return ["-1", str(LONG_MAX + 1)]
        case Text():
            return [" "]
        case IdPart(may_have_dots):
            return ["n" * 101, "a b" if may_have_dots else "a.b"]
    return ["", "other"]


@pytest.mark.parametrize("row", [row for row in _KINDS if row.default], ids=lambda row: row.name)
def test_the_default_reads_as_the_option_that_is_not_given(row: rows.Option) -> None:
    assert row.default is not None
    needed = _needed(row)
    assert _read({**needed, row.name: row.default}) == _read(needed)


@pytest.mark.parametrize(
    "row", [row for row in _KINDS if row.name != "table"], ids=lambda row: row.name
)
def test_readers_and_the_page_follow_the_default_of_the_row(
    row: rows.Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = _needed(row)
    other = next(value for value in _allowed(row) if value != row.default)
    given = _read({**needed, row.name: other})
    monkeypatch.setitem(rows.BY_KEY, row.name.lower(), row._replace(default=other))
    assert _read(needed) == given
    (line,) = (line for line in options_page().splitlines() if line.startswith(f"| `{row.name}` |"))
    assert f" | `{other}` | {row.values} | " in line


@pytest.mark.parametrize("row", _KINDS, ids=lambda row: row.name)
def test_a_reader_has_the_bounds_of_the_row(row: rows.Option) -> None:
    for value in _allowed(row):
        _read({**_needed(row), row.name: value})
    for value in _refused(row):
        with pytest.raises(OptionError, match=f"option {row.name} is .*; expected "):
            _read({**_needed(row), row.name: value})


def test_exactly_once_without_its_options_has_their_defaults() -> None:
    assert _read({**_BEFORE, "exactlyOnce": "true"}).exactly_once == ExactlyOnce()
