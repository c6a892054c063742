"""docs/parity.md, printed from the rows, the tests that name them, and the results of runs.

`python -m tests.support.parity.docs` merges the results that runs left in `.dev/parity` into
docs/parity-results.json and prints the page. `--check` reports a row without a test, a marker
without a row, a link without an anchor, and a page that differs from a new print.
"""

import ast
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support.parity.report import RESULTS, ROOT
from tests.support.parity.rows import IDS, ROWS
from tests.support.parity.run_origins import Runs, behind, lines

PAGE = ROOT / "docs" / "parity.md"
KEPT = ROOT / "docs" / "parity-results.json"
DIFFERENCES = ROOT / "docs" / "differences.md"

Outcomes = dict[str, dict[str, dict[str, str]]]
"""By engine, by test: klog's outcome, and the peer's."""

Kept = tuple[Outcomes, Runs]
"""Results, and the runs from which they come."""

_COLUMNS = (
    ("klog", re.compile(r"klog(-spark-.*)?")),
    ("Kafka 3.9", re.compile(r"kafka-3\.9\..*")),
    ("Kafka 4.3", re.compile(r"kafka-4\.3\..*|peers")),
)
"""Titles, and the engines whose results each has."""
_HEAD = """\
# Compare klog with Spark's own Kafka connector, row by row

Printed by `python -m tests.support.parity.docs`; do not edit. Look up whether klog does what
Spark's own connector, *the peer*, does. In the tables below, each row is a promise with its tests.
The columns have the results of the tests' last runs:

- Column **klog**: klog on its own broker, with several Spark releases (`./dev test`).
- Columns **Kafka 3.9**, **Kafka 4.3**: klog on Apache Kafka, with Spark 4.2 (`./dev peers`).
- Column **the peer**: `format("kafka")` on Apache Kafka in the same test has the `same` rows and
  schema as klog, or `fails too` (`tests/golden/peer_failures.json` has its error texts), or differs
  (link to the difference).

A dash means that no test of the row runs on the column's broker (in *the peer*: with Spark's own
connector).

| results of | files of tests | commit | day | Spark | Python |
|---|---|---|---|---|---|
"""


class Marked(NamedTuple):
    """One test that names rows: ``name`` as pytest knows it, without parameters."""

    name: str
    rows: tuple[str, ...]
    differs: str | None


class Problem(Exception):
    """A marker that cannot be read. The text says where."""


# --- what the tests say ------------------------------------------------------------------------
def marked_tests(folder: Path = ROOT / "tests", root: Path = ROOT) -> list[Marked]:
    """Every test with a marker `parity`, read from the source without running it."""
    found: list[Marked] = []
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.parity" in text:
            found += _in_module(ast.parse(text), path.relative_to(root).as_posix())
    return found


def _in_module(module: ast.Module, file: str) -> list[Marked]:
    names = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    shared = _marks([names["pytestmark"]], names, file) if "pytestmark" in names else []
    found = []
    for scope, body in [("", module.body), *_classes(module)]:
        for node in body:
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
                continue
            marks = [*shared, *_marks(node.decorator_list, names, file)]
            if marks:
                rows = tuple(dict.fromkeys(row for mark in marks for row in mark[0]))
                differs = next((mark[1] for mark in marks if mark[1] is not None), None)
                found.append(Marked(f"{file}::{scope}{node.name}", rows, differs))
    return found


def _classes(module: ast.Module) -> list[tuple[str, list[ast.stmt]]]:
    return [(f"{node.name}::", node.body) for node in module.body if isinstance(node, ast.ClassDef)]


def _marks(
    nodes: Iterable[ast.expr], names: dict[str, ast.expr], file: str
) -> list[tuple[tuple[str, ...], str | None]]:
    """Ids and `differs` of each `pytest.mark.parity(...)` in these expressions, at any depth."""
    found = []
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("mark.parity"):
            continue
        rows = tuple(text for each in node.args for text in _texts(each, names, file))
        differs = [_texts(k.value, names, file) for k in node.keywords if k.arg == "differs"]
        found.append((rows, differs[0][0] if differs and differs[0] else None))
    return found


def _texts(node: ast.expr, names: dict[str, ast.expr], file: str) -> tuple[str, ...]:
    """The texts of an argument: a literal, or a name of the module for one."""
    if isinstance(node, ast.Name) and node.id in names:
        node = names[node.id]
    if isinstance(node, ast.Constant):
        return () if node.value is None else (str(node.value),)
    raise Problem(
        f"{file}, line {node.lineno}: give ids to the marker parity as texts, or as a name of "
        f"this module for one, not as {ast.unparse(node)}"
    )


# --- what runs found ---------------------------------------------------------------------------
def committed_results(path: Path = KEPT) -> Kept:
    """Return the committed results of earlier runs."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return kept.get("outcomes", {}), kept.get("runs", {})


def new_results(folder: Path = RESULTS) -> Kept:
    """Return the results that runs on this machine left in ``folder``."""
    outcomes: Outcomes = {}
    runs: Runs = {}
    for path in sorted(folder.glob("*/*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        outcomes.setdefault(path.parent.name, {}).update(found["tests"])
        runs.setdefault(path.parent.name, {})[path.stem] = found["run"]
    return outcomes, runs


def merged_runs(kept: Runs, new: Runs, tests: Iterable[Marked]) -> Runs:
    """Both, the new ones first, without files that have no marked test any more."""
    files = {test.name.partition("::")[0].removesuffix(".py").replace("/", ".") for test in tests}
    return {
        engine: {
            file: run
            for file, run in sorted({**kept.get(engine, {}), **new.get(engine, {})}.items())
            if file in files
        }
        for engine in sorted({*kept, *new})
    }


def merged(kept: Outcomes, new: Outcomes, tests: Iterable[Marked]) -> Outcomes:
    """Both, the new ones first, without tests that are no longer there."""
    names = {test.name for test in tests}
    return {
        engine: {
            name: outcome
            for name, outcome in sorted({**kept.get(engine, {}), **new.get(engine, {})}.items())
            if name in names
        }
        for engine in sorted({*kept, *new})
    }


# --- the page ----------------------------------------------------------------------------------
def page(tests: list[Marked], results: Outcomes, runs: Runs) -> str:
    """The page's text."""
    text = [_HEAD.rstrip("\n"), *lines(runs), ""]
    section = ""
    for row in ROWS:
        if row.section != section:
            section = row.section
            titles = [title for title, _ in _COLUMNS]
            text.append(f"\n## {section}\n")
            text.append(f"| row | what | {' | '.join(titles)} | the peer | tests |")
            text.append("|---" * (len(titles) + 4) + "|")
        mine = [test for test in tests if row.id in test.rows]
        name = row.id.partition(": ")[2]
        cells = [f"`{name}`", row.text.replace("|", "\\|")]
        cells += [_outcome(mine, _of_engines(engines, results)) for _, engines in _COLUMNS]
        cells += [_peer(mine, results), _tests(mine)]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join([*text, ""])


def _of_engines(engines: re.Pattern[str], results: Outcomes) -> list[dict[str, dict[str, str]]]:
    return [found for engine, found in results.items() if engines.fullmatch(engine)]


def _outcome(tests: list[Marked], results: list[dict[str, dict[str, str]]]) -> str:
    found = [each[test.name]["klog"] for test in tests for each in results if test.name in each]
    if not found:
        return "—"
    return "passed" if set(found) == {"passed"} else "**failed**"


def _peer(tests: list[Marked], results: Outcomes) -> str:
    words: list[str] = []
    for test in tests:
        if test.differs is not None:
            words.append(f"[{test.differs}](differences.md#{test.differs})")
            continue
        for outcomes in results.values():
            words += [w for w in outcomes.get(test.name, {}).get("peer", "").split(", ") if w]
    return ", ".join(dict.fromkeys(words)) or "—"


def _tests(tests: list[Marked]) -> str:
    by_file: dict[str, list[str]] = {}
    for test in tests:
        file, _, name = test.name.partition("::")
        by_file.setdefault(file, []).append(f"`{name}`")
    return "; ".join(f"[{Path(f).stem}](../{f}) {', '.join(n)}" for f, n in by_file.items())


# --- what is wrong -----------------------------------------------------------------------------
def problems(tests: list[Marked]) -> list[str]:
    """Rows without a test, markers without a row, links without an anchor."""
    shown = {row for test in tests for row in test.rows}
    found = [f"no test shows the row {row.id!r}" for row in ROWS if row.id not in shown]
    anchors = _anchors(DIFFERENCES.read_text(encoding="utf-8")) if DIFFERENCES.exists() else set()
    for test in tests:
        unknown = [row for row in test.rows if row not in IDS]
        found += [f"{test.name} names no row of parity/rows.py: {row!r}" for row in unknown]
        if test.differs is not None and test.differs not in anchors:
            found.append(f"{test.name}: differences.md has no anchor {test.differs!r}")
    return found


def _anchors(text: str) -> set[str]:
    """Anchors that a page names itself, and those that its headings make."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def main(arguments: list[str]) -> int:
    """Prints the page, or checks it; 0 if nothing is wrong."""
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: python -m tests.support.parity.docs [--check]", file=sys.stderr)
        return 2
    try:
        tests = marked_tests()
    except Problem as error:
        print(error, file=sys.stderr)
        return 1
    wrong = problems(tests)
    kept, kept_runs = committed_results()
    new, new_runs = ({}, {}) if check else new_results()
    results = merged(kept, new, tests)
    runs = merged_runs(kept_runs, new_runs, tests)
    text = page(tests, results, runs)
    if check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            wrong.append("docs/parity.md is not current: python -m tests.support.parity.docs")
    else:
        document = {"runs": runs, "outcomes": results}
        KEPT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(text, encoding="utf-8")
    for problem in wrong:
        print(problem, file=sys.stderr)
    unknown = [f"{engine}: of an unknown commit" for engine in results if not runs.get(engine)]
    older = "; ".join([*behind(runs, ROOT), *unknown]) or "all of this code"
    print(f"{len(ROWS)} rows, {len(tests)} tests of them, {len(wrong)} problems; results: {older}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
