"""spark-conf/: every line has its reason before it, with what was measured."""

from collections.abc import Iterator

import pytest

from benchmarks._spark_conf import JOB_OF, settings_in
from tests.support.repo.documents import ROOT

FOLDER = ROOT / "spark-conf"
FILES = ["spark-defaults.conf", "log4j2.properties"]


def paragraphs(name: str) -> Iterator[tuple[str, list[str]]]:
    """Each block of a file: its comment as one line of text, and its settings."""
    for block in (FOLDER / name).read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.splitlines()
        # A disabled setting has no space behind its #; a comment has one.
        words = [line[2:] for line in lines if line.startswith("# ") or line == "#"]
        yield " ".join(words), [line for line in lines if not line.startswith("# ")]


@pytest.mark.parametrize("name", FILES)
def test_a_comment_stands_before_the_settings_of_each_block(name: str) -> None:
    for block in (FOLDER / name).read_text(encoding="utf-8").strip().split("\n\n"):
        assert block.startswith("# "), block
        lines = [line.startswith("# ") for line in block.splitlines()]
        assert lines == sorted(lines, reverse=True), f"comment after a setting: {block}"


@pytest.mark.parametrize("name", FILES)
def test_every_setting_says_what_was_measured(name: str) -> None:
    with_settings = [(text, lines) for text, lines in paragraphs(name) if lines]
    assert len(with_settings) >= 3
    for text, lines in with_settings:
        assert "Measured: " in text, lines
    if name == "spark-defaults.conf":
        assert [lines for _, lines in with_settings if len(lines) > 1] == []


def test_the_bench_knows_every_setting_that_costs_time() -> None:
    settings = settings_in((FOLDER / "spark-defaults.conf").read_text(encoding="utf-8"))
    assert set(JOB_OF) <= set(settings)
    without = set(settings) - set(JOB_OF)
    # How often Spark plans a source, which test_reused_frames.py shows; and lines of a log.
    assert without == {"spark.sql.python.filterPushdown.enabled", "spark.ui.showConsoleProgress"}


def test_a_file_is_read_with_what_waits_behind_a_hash() -> None:
    text = "# spark.of.a.comment 1\nspark.a  1\n#spark.b two words\n\n# end\n"
    assert settings_in(text) == {"spark.a": "1", "spark.b": "two words"}
