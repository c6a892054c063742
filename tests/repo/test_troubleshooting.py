"""docs/troubleshooting.md, docs/exactly-once.md: each quoted message exists in klog's code."""

import ast
import re
from functools import cache

import pytest

from tests.support.repo.documents import ROOT

_PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
_OURS, _SPARKS = _PAGE.split("\n## Messages of Spark's own\n")
_REFUSALS = (ROOT / "docs" / "exactly-once.md").read_text(encoding="utf-8").split("\n## ")
_GAP = "…"


def _quoted(text: str) -> list[str]:
    """Return the messages that the tables' first columns quote as code."""
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [message for row in rows for message in re.findall("`([^`]+)`", row)]


def _refusals() -> str:
    (section,) = (text for text in _REFUSALS if text.startswith("Refusals"))
    return section


@cache
def _texts() -> str:
    """Every text of the package, one a line, with a gap where a value is put in."""
    found = []
    for path in sorted((ROOT / "pyspark_klog").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else _GAP for p in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub("%[sd]", _GAP, node.value))
    return "\n".join(text.replace("\n", " ") for text in found)


def _is_said(message: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in message.split(_GAP))
    return re.search(pattern, _texts()) is not None


@pytest.mark.parametrize("message", [*_quoted(_OURS), *_quoted(_refusals())])
def test_the_code_says_it(message: str) -> None:
    assert _is_said(message)
    # A quotation of nothing but gaps would be found anywhere.
    assert sum(len(part) for part in message.split(_GAP)) >= 15


def test_the_search_can_fail() -> None:
    assert len(_quoted(_OURS)) > 50
    assert len(_quoted(_refusals())) > 25
    assert not _is_said("topic … is on holiday")
    assert not _is_said(_quoted(_SPARKS)[0])


def test_a_message_is_explained_once() -> None:
    messages = _quoted(_PAGE)
    assert sorted({message for message in messages if messages.count(message) > 1}) == []
