"""How `./dev test` splits a run into processes, and how it counts."""

import re
from pathlib import Path

import pytest

from tests.support.suite import Counts, counts_of, plan, plan_oldest, run_oldest


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (
        "unit/test_a.py",
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


def test_every_spark_file_has_a_process_of_its_own_and_peers_are_left_out(checkout: Path) -> None:
    assert [run.arguments for run in plan(["-q"], checkout)] == [
        ("tests/integration", "tests/unit", "-q"),
        ("tests/spark/test_c.py", "-q"),
        ("tests/spark/test_d.py", "-q"),
        ("tests/spark/test_parity_x.py", "-q"),
    ]


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


@pytest.mark.parametrize(
    ("script", "counts"),
    [
        ("echo noise; echo '3 passed, 1 failed'; exit 1", Counts(3, 1)),
        ("echo '3 passed, 0 failed, 2 skipped'; echo", Counts(3, 0, 2)),
        ("echo '3 passed, 0 failed'; exit 1", Counts(3, 1)),
        ("echo 'dev: pip failed' >&2; exit 1", Counts(failed=1)),
    ],
)
def test_the_run_on_the_oldest_spark_is_counted_by_its_last_line(
    tmp_path: Path, script: str, counts: Counts
) -> None:
    dev = tmp_path / "dev"
    dev.write_text(f'#!/bin/sh\n[ "$*" = "test --spark 4.0 -x" ] || exit 9\n{script}\n')
    dev.chmod(0o755)
    assert run_oldest(["-x"], tmp_path) == counts


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
