"""How `./dev test` splits a run into processes, how it counts, and how long folders may take."""

import re
from pathlib import Path

import pytest

from tests.support.repo.documents import ROOT
from tests.support.repo.suite import FOLDER_GROUPS, SPARK_GROUPS, plan, plan_oldest
from tests.support.repo.suite_reports import (
    Counts,
    Timed,
    budgets,
    counts_of,
    over_budget,
    slowest,
    times_of,
)
from tests.support.spark import java_classes


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (
        "unit/log/test_a.py",
        "repo/test_r.py",
        "golden/test_g.py",
        "integration/test_b.py",
        "spark/test_c.py",
        "spark/test_d.py",
        "peers/test_oracle.py",
        "peers/test_spark_connector.py",
        "spark/test_parity_x.py",
        "support/eventually.py",
    ):
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return tmp_path


def _folders() -> set[str]:
    """Return the folders of tests with tests in them, or in folders below them."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {f"tests/{file.relative_to(ROOT).parts[1]}" for file in files}


def test_spark_files_share_processes_and_peers_are_left_out(checkout: Path) -> None:
    assert [(run.name, run.arguments) for run in plan(["-q"], checkout)] == [
        ("Spark: most files", ("tests/spark/test_c.py", "tests/spark/test_d.py", "-q")),
        ("Spark: parity", ("tests/spark/test_parity_x.py", "-q")),
        ("integration", ("tests/integration", "-q")),
        ("golden and repo and unit", ("tests/golden", "tests/repo", "tests/unit", "-q")),
    ]
    assert [run.has_spark for run in plan([], checkout)] == [True, True, False, False]


def test_every_spark_file_of_the_project_runs_once_in_few_processes() -> None:
    runs = [run for run in plan([]) if run.name.startswith("Spark: ")]
    assert [run.name for run in runs] == [f"Spark: {name}" for name, _ in SPARK_GROUPS]
    files = sorted(file for run in runs for file in run.arguments)
    there = sorted(file.relative_to(ROOT) for file in (ROOT / "tests/spark").glob("test_*.py"))
    assert files == [str(file) for file in there]


def test_files_of_clusters_have_a_process_of_their_own(checkout: Path) -> None:
    (checkout / "tests" / "integration" / "test_cluster_x.py").touch()
    runs = [(run.name, run.arguments) for run in plan(["-q"], checkout) if not run.has_spark]
    assert runs[:2] == [
        ("clusters", ("tests/integration/test_cluster_x.py", "-q")),
        ("integration", ("tests/integration/test_b.py", "-q")),
    ]
    (checkout / "tests" / "integration" / "test_b.py").unlink()
    names = [run.name for run in plan([], checkout) if not run.has_spark]
    assert names == ["clusters", "golden and repo and unit"]


def test_every_other_folder_of_the_project_runs_once() -> None:
    there = _folders()
    words = [each for run in plan([]) if not run.has_spark for each in run.arguments]
    assert len(words) == len(set(words))
    files = [word for word in words if word.endswith(".py")]
    split = {str(Path(file).parent) for file in files}
    assert sorted(files) == sorted(
        str(file.relative_to(ROOT)) for each in split for file in (ROOT / each).glob("test_*.py")
    )
    folders = set(words) - set(files)
    assert not folders & split
    assert folders | split == there - {"tests/spark", "tests/spark_oldest", "tests/peers"}
    assert {f"tests/{name}" for group in FOLDER_GROUPS for name in group} <= there


@pytest.mark.parametrize(
    "options", [["-x"], ["-k", "tests"], ["--deselect", "tests/unit/test_a.py::t"], ["-o", "a=b"]]
)
def test_options_and_their_values_go_to_every_process(checkout: Path, options: list[str]) -> None:
    runs = plan(options, checkout)
    assert len(runs) == 4
    assert all(run.arguments[-len(options) :] == tuple(options) for run in runs)


def test_with_a_path_only_that_is_run(checkout: Path) -> None:
    runs = plan(["-x", "tests/unit/test_a.py::test_one", "-k", "b"], checkout)
    assert [run.arguments for run in runs] == [("tests/unit/test_a.py::test_one", "-x", "-k", "b")]


def test_peers_are_chosen_by_name(checkout: Path) -> None:
    assert [run.arguments for run in plan(["oracle", "-q"], checkout, peers=True)] == [
        ("tests/peers/test_oracle.py", "-q")
    ]
    assert [run.name for run in plan([], checkout, peers=True)] == [
        "test_oracle",
        "test_spark_connector",
        "parity on Kafka 4.3.1",
        "parity on Kafka 3.9.1",
    ]


@pytest.mark.parametrize("name", ["parity", "parity_x"])
def test_scenarios_share_a_process_for_each_release_of_kafka(checkout: Path, name: str) -> None:
    runs = plan([name, "-x"], checkout, peers=True)
    assert [run.arguments for run in runs] == [("tests/spark/test_parity_x.py", "-x")] * 2
    assert [dict(run.environment) for run in runs] == [
        {"KLOG_PARITY_KAFKA": "4.3.1"},
        {"KLOG_PARITY_KAFKA": "3.9.1"},
    ]


def test_a_name_that_no_file_has_is_refused_with_those_there_are(checkout: Path) -> None:
    with pytest.raises(
        ValueError, match=r"no such tests of peers: kafka; there are: parity, oracle, spark"
    ):
        plan(["kafka"], checkout, peers=True)


def test_on_the_oldest_spark_one_process_runs_what_is_marked(checkout: Path) -> None:
    (checkout / "tests" / "spark" / "test_d.py").write_text("pytestmark = pytest.mark.oldest\n")
    oldest = checkout / "tests" / "spark_oldest" / "test_e.py"
    oldest.parent.mkdir()
    oldest.touch()
    (run,) = plan_oldest(["-x"], checkout)
    assert run.arguments == (
        *("tests/spark/test_d.py", "tests/spark_oldest/test_e.py"),
        *("-m", "oldest", "-x"),
    )
    assert re.fullmatch(r"the oldest Spark: \d+\.\d+\.\d+", run.name)
    (named,) = plan_oldest(["tests/spark/test_c.py"], checkout)
    assert named.arguments == ("tests/spark/test_c.py",)
    # A run on the newest leaves alone what only the oldest has.
    assert not any("spark_oldest" in word for run in plan([], checkout) for word in run.arguments)


def test_java_gets_an_archive_of_classes_only_when_it_is_complete(tmp_path: Path) -> None:
    assert java_classes.option(tmp_path) == ""
    java_classes.make("", tmp_path)  # without the program whose classes are archived
    assert java_classes.option(tmp_path) == ""
    (tmp_path / java_classes.FOLDER).mkdir(parents=True)
    archive = java_classes.archive(tmp_path)
    if archive is None:
        pytest.skip("this machine has no Java whose classes could be archived")
    archive.with_suffix(".123").touch()
    assert java_classes.option(tmp_path) == ""
    archive.touch()
    assert java_classes.option(tmp_path).endswith(f'"-XX:SharedArchiveFile={archive}"')


def test_a_report_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="9" failures="1" errors="2" skipped="1"/></testsuites>',
        encoding="utf-8",
    )
    assert counts_of(report) == Counts(passed=5, failed=3, skipped=1)
    assert counts_of(report).line() == "5 passed, 3 failed, 1 skipped"


def test_a_run_without_a_readable_report_is_a_failure(tmp_path: Path) -> None:
    assert counts_of(tmp_path / "none.xml") == Counts(failed=1)
    (tmp_path / "half.xml").write_text("<testsuites><testsu", encoding="utf-8")
    assert counts_of(tmp_path / "half.xml") == Counts(failed=1)


def test_counts_add_up_to_the_line_that_ci_reads() -> None:
    assert (Counts(passed=2) + Counts(passed=1, failed=1)).line() == "3 passed, 1 failed"


def test_the_slowest_tests_are_named_with_their_files(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = [
        '<testcase classname="tests.unit.log.test_a" name="test_quick" time="0.1"/>',
        '<testcase classname="tests.spark.test_b" name="test_slow[x.y]" time="12.34"/>',
        '<testcase classname="tests.unit.log.test_a.TestIt" name="test_in" time="3"/>',
    ]
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    times = times_of(report)
    assert slowest(times, 2) == [
        "   12.3 s  tests/spark/test_b.py::test_slow[x.y]",
        "    3.0 s  tests/unit/log/test_a.py::TestIt::test_in",
    ]
    assert [timed.folder for timed in times] == ["tests/unit", "tests/spark", "tests/unit"]
    assert {timed.folder for timed in times_of(report, "tests/old")} == {"tests/old"}
    assert times_of(tmp_path / "none.xml") == []


def test_a_folder_over_its_budget_is_named() -> None:
    times = [Timed(30.0, "a", "tests/unit"), Timed(31.0, "b", "tests/unit")]
    times += [Timed(9.0, "c", "tests/golden"), Timed(1.0, "d", "tests/new")]
    warnings = over_budget(times, {"tests/unit": 60, "tests/golden": 10})
    assert [warning.split(" (")[0] for warning in warnings] == [
        "warning: tests/new took 1 s of its 0 s",
        "warning: tests/unit took 61 s of its 60 s",
    ]


def test_every_folder_has_a_budget_and_all_of_them_fit_four_processes() -> None:
    allowed = budgets((ROOT / "docs" / "testing.md").read_text(encoding="utf-8"))
    there = _folders()
    assert set(allowed) == there - {"tests/peers"}
    assert sum(allowed.values()) <= 4 * 15 * 60
