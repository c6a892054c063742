"""A whole run of the tests: `./dev test` and `./dev peers` are this module.

Spark keeps one JVM, one session and one registry of data sources for the life of a process, so the
files of tests/spark run in the processes of `SPARK_GROUPS`, and each file of tests/peers in one of
its own; the other folders run in those of `FOLDER_GROUPS`. Four processes run at a time, two with a
Spark at most (`tests/support/repo/suite_lanes.py`).
`./dev peers parity` is one process for each release of Apache Kafka: its files share a server.
`./dev test --spark 4.0` is one process, too; a whole `./dev test` runs and counts it.
The last line, alone, is the count of the whole run: ``N passed, N failed``.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, PARITY_VARIABLE
from tests.support.repo.suite_lanes import NO_TESTS_COLLECTED, Interrupted, Job, Lanes
from tests.support.repo.suite_reports import Counts, budgets, over_budget, slowest, times_of
from tests.support.spark import java_classes

ROOT = Path(__file__).resolve().parents[3]

FOLDER_GROUPS = (("integration",), ("clients",), ("property",), ("faults",), ("simulation",))
"""Folders that share a process without Spark, in the order of their begin; those that are named
nowhere share another one, which begins after the first. Folders that take long begin early, so
that no core is idle at the end of the run."""

CLUSTER_FILES = ("integration", "test_cluster*.py")
"""A folder, and a pattern of its files that get a process of their own, which begins before the
folder's. Both mostly wait, but for different things."""

SPARK_GROUPS = (
    ("most files", ("test_*.py",)),
    (
        "jobs in processes of their own",
        (
            *("test_spark_soak.py", "test_exactly_once_kills.py"),
            *("test_spark_conf.py", "test_spark_connect.py", "test_recipes.py"),
        ),
    ),
    ("notebooks", ("test_notebooks.py",)),
    ("parity", ("test_parity_*.py",)),
    ("executors of their own", ("test_spark_local_cluster.py",)),
    ("executors on two addresses", ("test_exactly_once_speculation.py",)),
)
"""Processes in the order of their begin, the shortest last; a file goes to the last one it fits."""

_ALONE = ("spark", "spark_oldest", "peers")
_OLDEST_MARK = "mark.oldest"
_PARITY = "test_parity_"
# Options of pytest whose next word is their value, also when it looks like a path.
_WITH_VALUE = frozenset({"-k", "-m", "-p", "-c", "-o", "-W", "--deselect", "--ignore", "--rootdir"})
_LANES = 4
_MOST_SPARKS = 2
_SHORT_LIVED_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for JVMs that run a minute or two; they saved the notebooks 36 % of processor time."""
_PAGE = "docs/testing.md"
_REPORTS = ".dev/test-reports"
_OLDEST_REPORTS = ".dev/test-reports-oldest"
_OLDEST_FOLDER = "tests/spark_oldest"


@dataclass(frozen=True)
class Run:
    """One pytest process: what the user sees as its name, its arguments, and what is set in it."""

    name: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    has_spark: bool = False


def plan_oldest(arguments: Sequence[str], root: Path = ROOT) -> list[Run]:
    """The same for the oldest Spark: what carries the mark `oldest`, and tests/spark_oldest.

    Only files that have the mark are read: others may import what that release has not.
    """
    options, words = _split(arguments)
    if words:
        return [Run("the tests named", (*words, *options))]
    marked = [
        str(file.relative_to(root))
        for folder in ("spark", "spark_oldest")
        for file in sorted((root / "tests" / folder).glob("test_*.py"))
        if folder == "spark_oldest" or _OLDEST_MARK in file.read_text(encoding="utf-8")
    ]
    name = f"the oldest Spark: {metadata.version('pyspark')}"
    return [Run(name, (*marked, "-m", "oldest", *options))]


def plan(arguments: Sequence[str], root: Path = ROOT, *, peers: bool = False) -> list[Run]:
    """The processes of a run, in order.

    Options go to each of them. Where a path is named (with ``peers``: a name ``x`` of a file
    ``tests/peers/test_x.py``, or `parity`), only that is run. Raises ValueError for a name without
    a file.
    """
    options, words = _split(arguments)
    if peers:
        files = _peer_files(words, root)
        alone = [file for file in files if not file.name.startswith(_PARITY)]
        shared = [str(file.relative_to(root)) for file in files if file not in alone]
        runs = [Run(file.stem, (str(file.relative_to(root)), *options)) for file in alone]
        for release in (NEWEST_KAFKA, OLDEST_KAFKA) if shared else ():
            environment = ((PARITY_VARIABLE, release),)
            runs.append(Run(f"parity on Kafka {release}", (*shared, *options), environment))
        return runs
    if words:
        return [Run("the tests named", (*words, *options))]
    # Groups with a Spark begin first: the lane without Spark is free for the others anyway.
    return [*_spark_runs(options, root), *_other_runs(options, root)]


def _spark_runs(options: Sequence[str], root: Path) -> list[Run]:
    groups: dict[str, list[str]] = {name: [] for name, _ in SPARK_GROUPS}
    for file in sorted((root / "tests" / "spark").glob("test_*.py")):
        groups[_group_of(file.name)].append(str(file.relative_to(root)))
    return [
        Run(f"Spark: {name}", (*files, *options), has_spark=True)
        for name, files in groups.items()
        if files
    ]


def _other_runs(options: Sequence[str], root: Path) -> list[Run]:
    there = {
        folder.name
        for folder in (root / "tests").iterdir()
        if folder.name not in _ALONE and any(folder.rglob("test_*.py"))
    }
    rest = there.difference(*FOLDER_GROUPS)
    folder, pattern = CLUSTER_FILES
    files = sorted((root / "tests" / folder).glob("test_*.py"))
    clusters = [file for file in files if file.match(pattern)]
    runs = []
    if clusters:
        there.remove(folder)
        others = [file for file in files if file not in clusters]
        for name, some in (("clusters", clusters), (folder, others)):
            paths = tuple(str(file.relative_to(root)) for file in some)
            runs += [Run(name, (*paths, *options))] if paths else []
    first, *later = FOLDER_GROUPS
    for group in (first, tuple(sorted(rest)), *later):
        names = [name for name in group if name in there]
        if names:
            folders = (str(Path("tests", name)) for name in names)
            runs.append(Run(" and ".join(names), (*folders, *options)))
    return runs


def _group_of(file: str) -> str:
    fits = [name for name, patterns in SPARK_GROUPS if any(fnmatch(file, p) for p in patterns)]
    return fits[-1]


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into options (with their values) and other words, in their order."""
    options: list[str] = []
    words: list[str] = []
    takes_value = False
    for argument in arguments:
        if takes_value or argument.startswith("-"):
            options.append(argument)
        else:
            words.append(argument)
        takes_value = not takes_value and argument in _WITH_VALUE
    return options, words


def _peer_files(names: Sequence[str], root: Path) -> list[Path]:
    """Files of tests/peers, and those of tests/spark whose scenarios run on the peer, too.

    A name is that of a file without `test_`; `parity` stands for all that begin so.
    """
    there = {
        file.stem.removeprefix("test_"): file
        for file in (
            *sorted((root / "tests" / "peers").glob("test_*.py")),
            *sorted((root / "tests" / "spark").glob(f"{_PARITY}*.py")),
        )
    }
    if not names:
        return list(there.values())
    parity = [name for name, file in there.items() if file.name.startswith(_PARITY)]
    wanted = [each for name in names for each in (parity if name == "parity" else [name])]
    missing = [name for name in wanted if name not in there]
    if missing:
        known = ", ".join(["parity", *there])
        raise ValueError(f"no such tests of peers: {', '.join(missing)}; there are: {known}")
    return [there[name] for name in dict.fromkeys(wanted)]


def _jobs(
    runs: Sequence[Run], reports: Path, environment: tuple[tuple[str, str], ...]
) -> list[Job]:
    return [
        Job(
            run.name,
            (sys.executable, "-m", "pytest", f"--junitxml={report}", *run.arguments),
            report,
            (*environment, *run.environment),
            run.has_spark,
        )
        for number, run in enumerate(runs, 1)
        for report in (reports / f"{number}.xml",)
    ]


def _java_options(root: Path, *, make: bool) -> tuple[tuple[str, str], ...]:
    """Return the options of the tests' JVMs; with ``make`` the archive of classes is made first."""
    if make:
        java_classes.make(_SHORT_LIVED_JAVA, root)
    options = f"{_SHORT_LIVED_JAVA} {java_classes.option(root)}".rstrip()
    return ((java_classes.JAVA_VARIABLE, options),)


def _oldest_job(options: Sequence[str], root: Path) -> Job:
    """`./dev test --spark 4.0`, which uses another environment's Python."""
    command = (str(root / "dev"), "test", "--spark", "4.0", *options)
    report = _emptied(root / _OLDEST_REPORTS) / "1.xml"
    return Job("the oldest Spark", command, report, is_heavy=True)


@contextmanager
def _folder_of_reports(kept: Path | None) -> Iterator[Path]:
    """Empty and yield the folder ``kept``; without it yield a temporary folder."""
    if kept is not None:
        yield _emptied(kept)
    else:
        with tempfile.TemporaryDirectory(prefix="klog-tests-") as folder:
            yield Path(folder)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _say_times(jobs: Sequence[Job], root: Path, *, whole: bool) -> None:
    times = []
    for job in jobs:
        is_oldest = job.report.parent == root / _OLDEST_REPORTS
        times += times_of(job.report, _OLDEST_FOLDER if is_oldest else None)
    print("\nThe slowest tests:")
    print("\n".join(slowest(times)))
    if whole:
        for warning in over_budget(times, budgets((root / _PAGE).read_text(encoding="utf-8"))):
            print(warning)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Plans, runs, prints the count; 0 if something ran and nothing failed."""
    peers, oldest = "--peers" in arguments, "--oldest" in arguments
    rest = [argument for argument in arguments if argument not in ("--peers", "--oldest")]
    try:
        runs = plan_oldest(rest, root) if oldest else plan(rest, root, peers=peers)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    is_whole = not (peers or _split(rest)[1])
    kept = root / (_OLDEST_REPORTS if oldest else _REPORTS) if is_whole else None
    with _folder_of_reports(kept) as reports:
        # Kafka's servers choose another collector.
        is_set = peers or java_classes.JAVA_VARIABLE in os.environ
        # An archive for the oldest Spark costs more than its few JVMs save.
        java_options = () if is_set else _java_options(root, make=is_whole and not oldest)
        jobs = _jobs(runs, reports, java_options)
        if is_whole and not oldest:
            jobs.insert(1, _oldest_job(rest, root))  # early: its set-up may take minutes
        stop_at_failure = not {"-x", "--exitfirst"}.isdisjoint(rest)
        # Two of Apache Kafka with two Sparks would be too much for two cores.
        lanes = Lanes(
            1 if peers else _LANES,
            reports,
            cwd=root,
            stop_at_failure=stop_at_failure,
            most_heavy=_MOST_SPARKS,
        )
        try:
            return _run(jobs, lanes, root, whole=is_whole and not oldest)
        except Interrupted as interrupted:
            print(interrupted, file=sys.stderr)
            return 128 + interrupted.number


def _run(jobs: Sequence[Job], lanes: Lanes, root: Path, *, whole: bool) -> int:
    began = time.monotonic()
    counts = lanes.run(jobs)
    _say_times(jobs, root, whole=whole)
    left_out = [job.name for job, each in zip(jobs, counts, strict=True) if each is None]
    if left_out:
        print(f"left out after the first failure: {', '.join(left_out)}")
    total = sum((each for each in counts if each is not None), Counts())
    print(f"\n{len(jobs)} processes in {time.monotonic() - began:.0f} s")
    print(total.line(), flush=True)
    if total == Counts():
        return NO_TESTS_COLLECTED
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
