"""The public names of pyspark_klog: docs/api.md has them, and users are shown no other names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tools.docs.python_api import PUBLIC, python_api_page

ROOT = Path(__file__).resolve().parents[2]
_IMPORT = re.compile(r"from (pyspark_klog[\w.]*) import (?:\(([^)]*)\)|([^\n(]*))")

_FOR_DEVELOPERS = {"a-records-journey.md", "storage-engine.md", "testing.md"}
"""Pages on klog's own code, whose examples import internal names."""


def shown_texts() -> Iterator[str]:
    """README, pages of docs for users, examples, and the code of notebooks."""
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py")):
        if path.name not in _FOR_DEVELOPERS:
            yield path.read_text(encoding="utf-8")
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        yield from ("".join(cell["source"]) for cell in cells)


def shown_imports() -> set[tuple[str, str]]:
    """Module and name of each import from pyspark_klog that users are shown."""
    found = set()
    for text in shown_texts():
        for module, in_brackets, on_line in _IMPORT.findall(text):
            names = re.sub(r"#.*", "", in_brackets or on_line).split(",")
            found |= {(module, name.split()[0]) for name in names if name.strip()}
    return found


def test_a_public_name_or_signature_does_not_change_unseen() -> None:
    # After a change that is meant: ./dev python -m tools.docs, and a line in CHANGELOG.md.
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == python_api_page()


def test_users_are_shown_only_public_names() -> None:
    public = {(module, name) for module, names in PUBLIC.items() for name in names}
    public |= {tuple(module.rsplit(".", 1)) for module in PUBLIC if "." in module}
    shown = shown_imports()
    assert ("pyspark_klog.client.admin.topics", "NewTopic") in shown
    assert sorted(shown - public) == []
