"""Writes outcomes of tests of parity rows, and their run, to `.dev/parity/<engine>/<file>.json`.

`python -m tests.support.parity.docs` merges these files into docs/parity-results.json.
"""

import json
from collections.abc import Generator, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.parity.rows import IDS
from tests.support.parity.run_origins import this_run
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, kafka_release

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / ".dev" / "parity"

_ON_KAFKA = frozenset({"parity", "logs"})
"""Fixtures of tests that run on the broker that `kafka_release` says."""
_found = pytest.StashKey[dict[tuple[str, str], dict[str, str]]]()


def engine_name(file: str, release: str | None = None) -> str:
    """The engine of a file's results.

    `kafka-3.9.1` and the like, `peers` for tests that choose it themselves, `klog` for those on
    klog's own broker, `klog-spark-4.0` with another Spark than the pinned one.
    """
    if release:
        return f"kafka-{release}"
    if file.startswith("tests/peers/"):
        return "peers"
    spark = metadata.version("pyspark")
    pinned = f"pyspark=={spark}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return "klog" if pinned else f"klog-spark-{'.'.join(spark.split('.')[:2])}"


def release_of(item: pytest.Item) -> str | None:
    """The release of Apache Kafka that a test runs on: that of its process, or of a parameter."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    chosen = [value for value in parameters if value in (NEWEST_KAFKA, OLDEST_KAFKA)]
    return chosen[0] if chosen else kafka_release()


def test_name(nodeid: str) -> str:
    """A test's name without its parameters: they are one line of the page."""
    return nodeid.partition("[")[0]


def check_markers(items: Sequence[pytest.Item]) -> None:
    """Every marker names rows that exist: a misspelt one would never show up on the page."""
    for item in items:
        for marker in item.iter_markers("parity"):
            unknown = [row for row in marker.args if row not in IDS]
            if unknown or not marker.args or set(marker.kwargs) - {"differs"}:
                raise pytest.UsageError(
                    f"{item.nodeid}: @pytest.mark.parity takes ids of tests/support/parity/rows.py "
                    f"and differs=; unknown: {unknown or sorted(marker.kwargs)}"
                )


def only_with_parity(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On Apache Kafka, leave out tests of tests/spark that do not take `parity` (or `logs`).

    Such tests would run in the same way as in `./dev test`.
    """
    if kafka_release() is None:
        return
    left_out = [
        item
        for item in items
        if "spark" in item.path.parts and _ON_KAFKA.isdisjoint(getattr(item, "fixturenames", ()))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps how a marked test ended, and what the peer did in it."""
    report = yield
    if item.get_closest_marker("parity") is None:
        return report
    if report.when != "call" and report.outcome == "passed":
        return report
    results = item.config.stash.setdefault(_found, {})
    name = test_name(report.nodeid)
    place = engine_name(name.partition("::")[0], release_of(item)), name
    outcome = {"klog": report.outcome}
    # By name: this module is loaded by every run of pytest, and `scenarios.py` takes chispa.
    taken = getattr(item, "funcargs", {})
    did = [word for name in _ON_KAFKA & set(taken) for word in taken[name].peer_results]
    earlier = results.get(place)
    peer = earlier["peer"].split(", ") if earlier is not None and "peer" in earlier else []
    if peer or did:
        outcome["peer"] = ", ".join(dict.fromkeys([*peer, *did]))
    if earlier is None or earlier["klog"] == "passed":  # one failed parameter is a failed test
        results[place] = outcome
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes a file for each file of tests that had marked ones."""
    by_file: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for (engine, name), outcome in session.config.stash.get(_found, {}).items():
        by_file.setdefault((engine, name.partition("::")[0]), {})[name] = outcome
    for (engine, file), outcomes in by_file.items():
        path = RESULTS / engine / (file.replace("/", ".").removesuffix(".py") + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        tests = {**earlier.get("tests", {}), **outcomes}
        # A run of some tests makes the others' results no younger.
        is_whole = tests.keys() == outcomes.keys()
        run = this_run(ROOT) if is_whole else earlier["run"]
        text = json.dumps({"run": run, "tests": tests}, indent=1, sort_keys=True)
        path.write_text(text, encoding="utf-8")
