"""The Python examples of the pages for developers run."""

import re
from pathlib import Path

import pytest

from tests.support.documents import ROOT

PAGES = ("a-records-journey.md", "storage-engine.md", "testing.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_python_examples_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        found: dict[str, object] = {}
        exec(compile(block, name, "exec"), found)
        for key, value in list(found.items()):
            if key.startswith("test_") and callable(value):
                value()
