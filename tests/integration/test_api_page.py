"""The example of docs/api.md, run as its readers run it."""

from pathlib import Path

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_example_of_the_api_page_runs() -> None:
    code = _PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert "admin.create_topics" in code
    exec(code, {})
