"""How docs/parity.md comes about: markers found in sources, results merged, what is missing."""

from pathlib import Path

import pytest

from tests.support.parity_docs import (
    Marked,
    Problem,
    marked_tests,
    merged,
    page,
    problems,
)
from tests.support.parity_report import engine_name, release_of
from tests.support.parity_rows import IDS, ROWS
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA

_SOURCE = """
import pytest

ROW = "source option: assign"

@pytest.mark.parity(ROW, differs="assign-absent")
def test_one(parity): ...

@pytest.mark.parametrize(
    "a",
    [
        pytest.param(1, marks=pytest.mark.parity("refused: no strategy")),
        pytest.param(2, marks=pytest.mark.parity("refused: several strategies")),
    ],
)
def test_two(parity, a): ...

def test_without(): ...

class TestGroup:
    @pytest.mark.parity("source option: assign", "source option: subscribe")
    def test_three(self): ...
"""


def _scan(folder: Path, source: str) -> list[Marked]:
    file = folder / "tests" / "spark" / "test_x.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return marked_tests(folder / "tests", folder)


def test_ids_are_unique_and_begin_with_their_table() -> None:
    assert len(IDS) == len(ROWS) > 150
    assert all(": " in row.id and row.text for row in ROWS)


def test_markers_are_found_without_running_anything(tmp_path: Path) -> None:
    file = "tests/spark/test_x.py"
    assert _scan(tmp_path, _SOURCE) == [
        Marked(f"{file}::test_one", ("source option: assign",), "assign-absent"),
        Marked(f"{file}::test_two", ("refused: no strategy", "refused: several strategies"), None),
        Marked(
            f"{file}::TestGroup::test_three",
            ("source option: assign", "source option: subscribe"),
            None,
        ),
    ]


def test_a_marker_of_the_module_holds_for_each_of_its_tests(tmp_path: Path) -> None:
    source = "pytestmark = pytest.mark.parity('row: schema')\ndef test_a(): ...\n"
    assert _scan(tmp_path, source) == [
        Marked("tests/spark/test_x.py::test_a", ("row: schema",), None)
    ]


def test_a_marker_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"test_x\.py, line 1: .* not as f\(\)"):
        _scan(tmp_path, "@pytest.mark.parity(f())\ndef test_a(): ...\n")


def test_what_is_missing_is_said() -> None:
    tests = [Marked("t.py::test_a", ("source option: assign", "no such row"), "no-such-anchor")]
    found = problems(tests)
    assert "t.py::test_a names no row of parity_rows.py: 'no such row'" in found
    assert "t.py::test_a: differences.md has no anchor 'no-such-anchor'" in found
    assert "no test shows the row 'source option: subscribe'" in found
    assert "no test shows the row 'source option: assign'" not in found


def test_new_results_go_before_kept_ones_and_gone_tests_go() -> None:
    kept = {"klog": {"a": {"klog": "passed"}, "b": {"klog": "passed"}, "gone": {"klog": "passed"}}}
    new = {"klog": {"b": {"klog": "failed"}}, "kafka-4.3.1": {"a": {"klog": "passed"}}}
    tests = [Marked("a", ("x",), None), Marked("b", ("x",), None)]
    assert merged(kept, new, tests) == {
        "kafka-4.3.1": {"a": {"klog": "passed"}},
        "klog": {"a": {"klog": "passed"}, "b": {"klog": "failed"}},
    }


@pytest.mark.parametrize(
    ("file", "release", "engine"),
    [
        ("tests/spark/test_parity_sink.py", "3.9.1", "kafka-3.9.1"),
        ("tests/peers/test_x.py", "4.3.1", "kafka-4.3.1"),
        ("tests/peers/test_x.py", None, "peers"),
        ("tests/unit/test_x.py", None, "klog"),
    ],
)
def test_results_belong_to_an_engine(file: str, release: str | None, engine: str) -> None:
    assert engine_name(file, release) == engine


@pytest.mark.parametrize("release", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_a_parameter_says_the_release(request: pytest.FixtureRequest, release: str) -> None:
    assert release_of(request.node) == release


def test_a_row_of_the_page() -> None:
    tests = [
        Marked("tests/spark/test_x.py::test_a", ("source option: assign",), None),
        Marked("tests/spark/test_x.py::test_b", ("source option: assign",), "assign-absent"),
    ]
    results = {
        "klog": {tests[0].name: {"klog": "passed"}},
        "klog-spark-4.0": {tests[1].name: {"klog": "failed"}},
        "kafka-4.3.1": {tests[0].name: {"klog": "passed", "peer": "same"}},
    }
    [line] = [line for line in page(tests, results).splitlines() if line.startswith("| `assign`")]
    assert line == (
        '| `assign` | partitions as JSON, {"t":[0,1]} | **failed** | — | passed | '
        "same, [assign-absent](differences.md#assign-absent) | "
        "[test_x](../tests/spark/test_x.py) `test_a`, `test_b` |"
    )
