"""The printer of the generated pages."""

from pathlib import Path

import pytest

from tools.docs.pages import print_pages


def test_pages_are_written_and_then_current(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {"one.md": lambda: "1\n", "two.md": lambda: "2\n"}
    assert print_pages(pages, ["--check"], tmp_path) == 1
    assert "one.md, two.md" in capsys.readouterr().err
    assert print_pages(pages, [], tmp_path) == 0
    assert print_pages(pages, ["--check"], tmp_path) == 0
    (tmp_path / "two.md").write_text("old")
    assert print_pages(pages, ["--check"], tmp_path) == 1
    assert print_pages(pages, ["--chek"], tmp_path) == 2
