"""docs/first-change.md: fifteen questions, each with places that exist."""

import re

import pytest

from tests.support.repo.documents import ROOT, project_files

PAGE = (ROOT / "docs" / "first-change.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith(("| a", "| the "))
]


def test_the_page_answers_fifteen_questions() -> None:
    assert len(ROWS) == 15
    for what, *cells in ROWS:
        assert all(re.findall(r"`[^`]+`", cell) for cell in cells), what


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_path_of_a_row_exists(row: list[str]) -> None:
    names = {path.rsplit("/", 1)[-1] for path in project_files()}
    for quoted in re.findall(r"`([^`]+)`", " ".join(row[1:])):
        if "/" not in quoted:
            assert quoted in names, quoted
        else:
            assert (ROOT / quoted).exists(), quoted
            assert (ROOT / quoted).is_dir() == quoted.endswith("/"), quoted


def test_each_path_of_the_steps_exists() -> None:
    steps = PAGE.split("\n## ", 1)[1]
    paths = re.findall(r"`((?:broker|pyspark_klog|docs|tests|tools)/[^`]+)`", steps)
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
