"""Pages for operators: exit codes, fixed limits and files are those of the code."""

import re
from pathlib import Path

from klog_broker.cli.common.errors import CommandExit
from klog_broker.lifecycle.exit_codes import ExitCode
from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.local_file import FILE_NAME, VERSION
from klog_broker.network import bounds
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.ids import BrokerId
from pyspark_klog.storage import names
from tests.support.repo.documents import ROOT
from tools.docs.alerts import ALERTS
from tools.docs.bounds import bounds_page, with_unit

OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
DIRECTORIES = (ROOT / "docs" / "data-directories.md").read_text(encoding="utf-8")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def test_the_exit_codes_are_all_there() -> None:
    written = {int(row[0]) for row in rows(OPERATIONS, "Exit codes")}
    assert written == {int(code) for code in (*CommandExit, *ExitCode)}


def test_the_runbook_has_one_row_for_each_alert() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    named = [name for row in rows(page, "Alerts") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(alert.name for alert in ALERTS)


def test_every_bound_of_the_network_is_on_the_page() -> None:
    named = {row[3].strip("`").rpartition(".")[2] for row in rows(bounds_page(), "Connections")}
    named |= {row[3].strip("`").rpartition(".")[2] for row in rows(bounds_page(), "Requests")}
    assert {name for name in vars(bounds) if name.isupper()} <= named


def test_a_bound_is_shown_with_its_unit() -> None:
    assert with_unit("SEND_BYTES", (1024 + 64) * 1024) == "1088 KiB"
    assert with_unit("ARENA_BYTES", 4 * 1024 * 1024) == "4 MiB"
    assert with_unit("MAX_REQUEST_BYTES", 1_000_000) == "1,000,000 bytes"
    assert with_unit("HEAD_MS", 10_000) == "10 s"
    assert with_unit("ACCEPT_PAUSE_MS", 100) == "100 ms"
    assert with_unit("MAX_PARTITIONS", 64_000) == "64,000"


def test_the_files_of_a_data_directory_are_all_there() -> None:
    text = "".join(row[0] for row in rows(DIRECTORIES, "Files of a data directory"))
    for name in (
        FILE_NAME,
        names.META_PROPERTIES,
        names.LOCK,
        names.CLEAN_SHUTDOWN_MARKER,
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.SYNC_NOTES,
    ):
        assert f"`{name}`" in text
    assert f'"version":{VERSION}' in DIRECTORIES


def test_the_example_of_the_metadata_file_can_be_read(tmp_path: Path) -> None:
    begin = DIRECTORIES.index('{"format"')
    example = DIRECTORIES[begin : DIRECTORIES.index("```", begin)]
    (tmp_path / FILE_NAME).write_text(example, encoding="utf-8")
    image = LocalStore.open(RealFiles(), tmp_path, BrokerId(0)).image
    assert list(image.topics) == ["flights"]
