"""The page of options: current, whole, and true where it names defaults and values."""

import re

import pytest

from pyspark_klog.client.settings.setting_rows import SETTINGS
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.options.rows import (
    OPTIONS,
    REFUSED_BY_SINK,
    REFUSED_BY_SOURCE,
    TABLES,
    Option,
    Status,
)
from tools.docs import options as option_docs

_NAMED = {"kafka.bootstrap.servers": "h:1"}


def test_the_page_names_every_option_and_setting() -> None:
    page = option_docs.options_page()
    for row in OPTIONS:
        assert page.count(f"| `{row.name}` |") == (row.status is Status.APPLIED), row.name
        assert f"`{row.name}`" in page
    for name in (*SETTINGS, *REFUSED_BY_SOURCE, *REFUSED_BY_SINK):
        assert f"`kafka.{name}`" in page, name


def test_an_option_that_no_section_names_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "## Others" not in option_docs.options_page()
    row = Option("newOne", OPTIONS[0].use, None, "what it does", "`a`")
    monkeypatch.setattr(option_docs, "OPTIONS", (*OPTIONS, row))
    assert "## Others\n\n| option |" in option_docs.options_page()


def test_every_option_that_counts_says_what_may_be_given() -> None:
    assert [row.name for row in OPTIONS if row.status is Status.APPLIED and not row.values] == []


def test_defaults_are_those_that_are_applied() -> None:
    for row in OPTIONS:
        if row.default is not None and row.status is Status.APPLIED:
            without = dict(_NAMED)
            if row.name == "committedOffsetsMissing":
                without |= {"commitGroupId": "g", "startingOffsets": "committed"}
            given = {**without, row.name: row.default}
            assert _settled(read_options(given)) == _settled(read_options(without)), row.name


def _settled(options: Options) -> Options:
    options = options.for_batch()
    object.__setattr__(options, "limits", ())  # the names that were given
    return options


def test_words_that_are_listed_are_taken_and_others_are_not() -> None:
    listed = {"startingOffsetsByTimestampStrategy", "committedOffsetsMissing", "table"}
    for row in (row for row in OPTIONS if row.name in listed):
        words = re.findall("`([^`]+)`", row.values)
        assert len(words) > 1
        beside = {} if row.name == "table" else {"commitGroupId": "g"}
        if row.name == "committedOffsetsMissing":
            beside["startingOffsets"] = "committed"
        for word in words:
            read_options({**_NAMED, **beside, row.name: word})
        with pytest.raises(OptionError, match=f"option {row.name} is 'other'; expected"):
            read_options({**_NAMED, **beside, row.name: "other"})
    assert set(TABLES) == {"topics", "partitions", "groups", "offsets", "sinks"}
