"""The documents: the file map is whole and true, links lead somewhere, reasons are given."""

import re
from pathlib import Path

import pytest

from tests.support.repo.documents import (
    MAP,
    ROOT,
    broken_links,
    due_in_map,
    mapped_paths,
    project_files,
    unknown_files,
)

DOCUMENTS = [ROOT / name for name in project_files() if name.endswith(".md")]


def test_every_path_of_the_map_exists() -> None:
    paths = mapped_paths(MAP.read_text(encoding="utf-8"))
    assert len(paths) > 30
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert missing == []
    assert [path for path in paths if (ROOT / path).is_dir() != path.endswith("/")] == []


def test_every_part_of_the_project_is_on_the_map() -> None:
    paths = mapped_paths(MAP.read_text(encoding="utf-8"))
    assert sorted(due_in_map(project_files()) - set(paths)) == []
    assert sorted({path for path in paths if paths.count(path) > 1}) == []


def test_what_is_due_on_the_map() -> None:
    files = ["dev", "docs/a.md", "pyspark_klog/py.typed", "pyspark_klog/ids.py"]
    files += [
        "pyspark_klog/records/batch.py",
        "broker/klog_broker/log/segment/segment.py",
        "benchmarks/x.py",
    ]
    assert due_in_map(files) == {
        *("dev", "docs/a.md", "pyspark_klog/ids.py", "pyspark_klog/records/"),
        *("broker/klog_broker/log/", "benchmarks/"),
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_quoted_files_exist(document: Path) -> None:
    assert broken_links(document) == []
    if ROOT / "docs" / "decisions" not in document.parents:  # A decision keeps its time's names.
        assert unknown_files(document) == []


def test_every_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "([A-Za-z0-9-]+)[\[>=]', setup, re.MULTILINE)
    names += re.findall(r'^[A-Z_]+ = \["([A-Za-z0-9-]+)[\[>=]', setup, re.MULTILINE)
    assert {"numpy", "pytest", "kazoo", "pyspark", "pyiceberg", "confluent-kafka"} <= set(names)
    assert [name for name in names if not re.search(rf"\b{name}\b", reasons)] == []


def test_every_dependency_is_pinned_and_spark_to_one_release() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for name in re.findall(r'"([A-Za-z0-9-]+)(?:\[[\w-]+\])?>=', setup):
        assert re.search(rf"^{name.lower()}==", pins, re.MULTILINE), name
    assert "pyspark==4.3.0\n" in pins


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_the_clients_of_the_readme_are_those_that_were_tried(client: str) -> None:
    def minor(version: str) -> tuple[int, ...]:
        return tuple(map(int, version.split(".")[:2]))

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    oldest, newest = re.search(rf"{client} ([\d.]+) to ([\d.]+)", readme).groups()
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert [minor(newest)] == [
        minor(pin) for pin in re.findall(rf"^{client}==(.+)$", pins, re.MULTILINE)
    ]
    tried = (ROOT / "tests" / "clients" / "test_clients_oldest.py").read_text(encoding="utf-8")
    named = re.findall(rf'"{client}==([\d.]+)"', tried)
    if client == "confluent-kafka":
        named = re.findall(r'confluent\("([\d.]+)"\)', tried)
    assert minor(oldest) == min(map(minor, named))


def test_decision_records_are_wrapped_at_100_columns() -> None:
    records = sorted((ROOT / "docs" / "decisions").rglob("*.md"))
    assert records
    too_long = [
        f"{path.name}:{number}"
        for path in records
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100 and not line.startswith("|")  # a row of a table is one line
    ]
    assert too_long == []


def test_the_brokers_loggers_are_those_of_operations() -> None:
    sources = (ROOT / "broker" / "klog_broker").rglob("*.py")
    asked = {
        name
        for path in sources
        for name in re.findall(r"getLogger\((.*?)\)", path.read_text(encoding="utf-8"))
        # Other packages' loggers, the parent of all, and the root.
        if name not in ('"numba"', '"pyspark_klog"', '"klog"', "")
    }
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = operations.partition("| logger |")[2].partition("\n\n")[0]
    assert asked == {f'"{name}"' for name in re.findall(r"`(klog\.[a-z]+)`", table)}
