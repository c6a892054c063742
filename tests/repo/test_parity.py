"""docs/parity.md: markers found in sources, merged results, and reports of missing parts."""

from pathlib import Path

import pytest

from tests.support.parity import peer_failures, run_origins
from tests.support.parity.docs import (
    Marked,
    Problem,
    marked_tests,
    merged,
    merged_runs,
    page,
    problems,
)
from tests.support.parity.peer_failures import PeerFailures, reason
from tests.support.parity.report import engine_name, release_of
from tests.support.parity.rows import IDS, ROWS
from tests.support.parity.run_origins import Runs, behind, this_run
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
    assert "t.py::test_a names no row of parity/rows.py: 'no such row'" in found
    assert "t.py::test_a: differences.md has no anchor 'no-such-anchor'" in found
    assert "no test shows the row 'source option: subscribe'" in found
    assert "no test shows the row 'source option: assign'" not in found


def test_new_results_replace_committed_ones_and_deleted_tests_are_dropped() -> None:
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


def test_the_page_says_which_runs_its_results_are_of(tmp_path: Path) -> None:
    old = {"commit": "0123456789", "date": "2026-01-02", "spark": "4.2.0", "python": "3.11"}
    new = {**old, "commit": "abcdef0123+", "date": "2026-01-03"}
    tests = [Marked("tests/spark/test_x.py::test_a", ("x",), None)]
    tests.append(Marked("tests/spark/test_y.py::test_b", ("x",), None))
    kept: Runs = {"klog": {"tests.spark.test_x": old, "tests.spark.gone": old}}
    runs = merged_runs(kept, {"klog": {"tests.spark.test_y": new}}, tests)
    assert runs == {"klog": {"tests.spark.test_x": old, "tests.spark.test_y": new}}
    printed = page(tests, {}, runs)
    assert "| klog | 1 | `0123456789` | 2026-01-02 | 4.2.0 | 3.11 |" in printed
    assert "| klog | 1 | `abcdef0123+` | 2026-01-03 | 4.2.0 | 3.11 |" in printed


def test_results_of_older_code_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    since = {"old": "3", "older": "5", "new": "0"}

    def git(_: Path, *arguments: str) -> str:
        return next((n for c, n in since.items() if f"{c}..HEAD" in arguments), "")

    monkeypatch.setattr(run_origins, "_git", git)

    def runs(*commits: str) -> dict[str, dict[str, str]]:
        return {f"file-{number}": {"commit": commit} for number, commit in enumerate(commits)}

    found = behind({"a": runs("new"), "b": runs("old", "older+"), "c": runs("lost")}, tmp_path)
    assert found == ["b: up to 5 commits older", "c: of a commit that is not in this history"]


def test_a_run_names_its_commit_day_and_releases() -> None:
    found = this_run(Path(__file__).parents[2])
    assert set(found) == {"commit", "date", "spark", "python"}
    assert all(found.values())


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("no topic spark-12-ab3f9c,\n after 60000 ms", "x.Y: no topic #, after # ms"),
        ("", "x.Y"),
        ("a" * 200, "x.Y: " + "a" * 100),
    ],
)
def test_which_part_of_the_peers_reason_is_stored(text: str, kept: str) -> None:
    assert reason("x.Y", text) == kept
    assert reason("org.apache.kafka.common.errors.Z", text) == "org.apache.kafka.common.errors.Z"


def test_a_peer_that_fails_for_another_reason_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "failures.json"
    file.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(peer_failures, "KEPT", file)
    with pytest.raises(AssertionError, match="nothing is written down"):
        PeerFailures("t").check(ValueError("absent topic"))
    monkeypatch.setenv(peer_failures.WRITE_VARIABLE, "1")
    written = PeerFailures("t")
    written.check(ValueError("absent topic"))
    written.check(ValueError("wrong password"))
    monkeypatch.delenv(peer_failures.WRITE_VARIABLE)
    again = PeerFailures("t")
    again.check(ValueError("absent topic"))
    with pytest.raises(AssertionError, match="wrong password"):
        again.check(ValueError("absent topic"))


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
    printed = page(tests, results, {}).splitlines()
    [line] = [line for line in printed if line.startswith("| `assign`")]
    assert line == (
        '| `assign` | partitions as JSON, {"t":[0,1]} | **failed** | — | passed | '
        "same, [assign-absent](differences.md#assign-absent) | "
        "[test_x](../tests/spark/test_x.py) `test_a`, `test_b` |"
    )
