"""Parallel processes of `./dev test`: no failure is lost, and no process is left running."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.repo.documents import ROOT
from tests.support.repo.suite import main
from tests.support.repo.suite_lanes import Job, Lanes
from tests.support.repo.suite_reports import Counts

PASSED = '<testsuites><testsuite tests="2"/></testsuites>'
FAILED = '<testsuites><testsuite tests="2" failures="1"/></testsuites>'


def job(
    folder: Path, name: str, script: str, report: str | None = PASSED, *, is_heavy: bool = False
) -> Job:
    """A shell script that writes this report before it does anything else."""
    path = folder / f"{name}.xml"
    written = f"printf '%s' '{report}' >'{path}'\n" if report is not None else ""
    return Job(name, ("sh", "-ec", written + script), path, is_heavy=is_heavy)


def lines_of(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if line]


def test_two_run_at_once_and_each_ones_output_is_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("to-b", "to-a"):
        os.mkfifo(tmp_path / name)
    # Each job waits for the other one between two outputs: one after the other they would hang.
    jobs = [
        job(tmp_path, "a", f"echo a1; echo >{tmp_path}/to-b; read x <{tmp_path}/to-a; echo a2 >&2"),
        job(tmp_path, "b", f"echo b1; read x <{tmp_path}/to-b; echo >{tmp_path}/to-a; echo b2"),
        job(tmp_path, "c", "echo c1; exit 5"),  # pytest's code for no tests collected
    ]
    assert Lanes(2, tmp_path).run(jobs) == [Counts(2), Counts(2), Counts(2)]
    said = [line.partition(", in ")[0] for line in lines_of(capfd.readouterr().out)]
    for whole in (
        ["[1/3] a", "a1", "a2", "[1/3] a: 2 passed, 0 failed"],
        ["[2/3] b", "b1", "b2", "[2/3] b: 2 passed, 0 failed"],
        ["[3/3] c", "c1", "[3/3] c: 2 passed, 0 failed"],
    ):
        at = said.index(whole[0])
        assert said[at : at + len(whole)] == whole
    assert sorted(line for line in said if line.endswith(": begins")) == [
        "[1/3] a: begins",
        "[2/3] b: begins",
        "[3/3] c: begins",
    ]


def test_a_heavy_one_waits_for_another_and_lets_those_behind_it_begin(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("first-goes-on", "last-goes-on"):
        os.mkfifo(tmp_path / name)
    jobs = [
        job(tmp_path, "first", f"read x <{tmp_path}/first-goes-on", is_heavy=True),
        job(tmp_path, "second", f"echo >{tmp_path}/last-goes-on", is_heavy=True),
        # Were this one behind the heavy ones, nobody would go on.
        job(tmp_path, "last", f"echo >{tmp_path}/first-goes-on; read x <{tmp_path}/last-goes-on"),
    ]
    assert Lanes(2, tmp_path, most_heavy=1).run(jobs) == [Counts(2)] * 3
    said = lines_of(capfd.readouterr().out)
    ended = next(at for at, line in enumerate(said) if line.startswith("[1/3] first: 2 passed"))
    assert said.index("[2/3] second: begins") > ended


def test_what_dies_counts_as_failed_and_the_others_go_on(tmp_path: Path) -> None:
    stale = tmp_path / "dead.xml"
    stale.write_text(PASSED, encoding="utf-8")
    jobs = [
        job(tmp_path, "dead", "kill -9 $$", report=None),
        job(tmp_path, "half", "exit 3", report="<testsuites><tests"),
        job(tmp_path, "wrong", "exit 3"),
        job(tmp_path, "failed", "exit 1", report=FAILED),
        job(tmp_path, "well", "true"),
    ]
    assert Lanes(2, tmp_path).run(jobs) == [
        Counts(failed=1),
        Counts(failed=1),
        Counts(2, 1),
        Counts(1, 1),
        Counts(2),
    ]


WAITS = """exec {python} -c '
import os, pathlib, signal
try:
    pathlib.Path("{pid}").write_text(str(os.getpid()))
    signal.pause()
except KeyboardInterrupt:
    print("asked to end")
'"""


def waits(folder: Path, name: str) -> str:
    return WAITS.format(python=sys.executable, pid=folder / f"{name}.pid")


def pid_of(folder: Path, name: str) -> int:
    file = folder / f"{name}.pid"
    eventually(lambda: file.exists() and file.read_text(), 30, f"{name} having begun")
    return int(file.read_text())


def test_after_the_first_failure_nothing_begins_and_what_runs_is_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = tmp_path / "waiting.pid"
    os.mkfifo(begun)
    jobs = [
        job(tmp_path, "waiting", waits(tmp_path, "waiting")),
        job(tmp_path, "failed", f"read pid <{begun} || true; exit 1", report=FAILED),
        job(tmp_path, "never", f"touch {tmp_path}/never.began"),
    ]
    assert Lanes(2, tmp_path, stop_at_failure=True).run(jobs) == [Counts(2), Counts(1, 1), None]
    assert "asked to end" in capfd.readouterr().out
    assert not (tmp_path / "never.began").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("count", [1, 2])
def test_a_signal_ends_every_process(tmp_path: Path, number: int, count: int) -> None:
    names = [f"job-{n}" for n in range(count)]
    scripts = {name: waits(tmp_path, name) for name in names}
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from tests.support.repo.suite_lanes import Interrupted, Job, Lanes
        folder = Path({str(tmp_path)!r})
        jobs = [Job(n, ("sh", "-c", s), folder / n) for n, s in {scripts!r}.items()]
        try:
            Lanes(2, folder).run(jobs)
        except Interrupted as interrupted:
            print(interrupted)
            sys.exit(128 + interrupted.number)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        pids = [pid_of(tmp_path, name) for name in names]
        run.send_signal(number)
        printed, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert f"ended by {signal.Signals(number).name}" in printed
    assert printed.count("asked to end") == count
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


DEV = """#!/bin/sh
[ "$*" = "test --spark 4.0 -q" ] || exit 9
echo "the oldest runs"
printf '%s' '<testsuites><testsuite tests="3" skipped="1"><testcase
    classname="tests.spark.test_b" name="test_old" time="7.5"/></testsuite></testsuites>' \\
    >.dev/test-reports-oldest/1.xml
"""


def test_a_whole_run_ends_with_the_slowest_tests_warnings_and_the_count(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "tests/unit/test_a.py": "def test_one(): pass\n\ndef test_two(): assert not 'this'\n",
        "tests/spark/test_b.py": "import os\n\ndef test_java():\n"
        "    assert 'SerialGC' in os.environ['JDK_JAVA_OPTIONS']\n",
        "docs/testing.md": "| `tests/unit` | x | y | 40 |\n| `tests/spark` | x | y | 10 |\n",
        "dev": DEV,
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "dev").chmod(0o755)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    assert main(["-q"], tmp_path) == 1
    said = lines_of(capfd.readouterr().out)
    assert "the oldest runs" in said
    assert any("assert not 'this'" in line for line in said)
    at = said.index("The slowest tests:")
    assert said[at + 1] == "    7.5 s  tests/spark/test_b.py::test_old"
    assert {line.split("  ")[-1] for line in said[at + 2 : at + 5]} == {
        "tests/spark/test_b.py::test_java",
        "tests/unit/test_a.py::test_one",
        "tests/unit/test_a.py::test_two",
    }
    assert said[at + 5].startswith("warning: tests/spark_oldest took 8 s of its 0 s")
    assert said[at + 6].startswith("3 processes in ")
    assert said[at + 7 :] == ["4 passed, 1 failed, 1 skipped"]
    kept = sorted((tmp_path / ".dev").rglob("*.*"))
    assert {file.suffix for file in kept} == {".log", ".xml"}
    # A named test beside a whole run takes nothing away from it.
    assert main(["tests/unit/test_a.py::test_one"], tmp_path) == 0
    assert lines_of(capfd.readouterr().out)[-1] == "1 passed, 0 failed"
    assert sorted((tmp_path / ".dev").rglob("*.*")) == kept
