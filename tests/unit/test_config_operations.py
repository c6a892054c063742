"""docs/operations.md: its exit codes are the programs', its bounds are the code's."""

import importlib
from pathlib import Path

from klog_broker.cli.common.errors import CommandExit
from klog_broker.lifecycle.exit_codes import ExitCode
from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.local_file import FILE_NAME, VERSION
from klog_broker.network import bounds
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.ids import BrokerId
from pyspark_klog.storage import names

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def test_the_exit_codes_are_all_there() -> None:
    written = {int(row[0]) for row in rows("Exit codes")}
    assert written == {int(code) for code in (*CommandExit, *ExitCode)}


def test_every_bound_has_the_value_that_the_page_says() -> None:
    for bound, value, where, _ in rows("Bounds"):
        module, _, name = where.strip("`").rpartition(".")
        assert getattr(importlib.import_module(module), name) == int(value), bound


def test_every_bound_of_the_network_is_on_the_page() -> None:
    named = {row[2].strip("`").rpartition(".")[2] for row in rows("Bounds")}
    assert {name for name in vars(bounds) if name.isupper()} <= named


def test_the_files_of_a_data_directory_are_all_there() -> None:
    text = "".join(row[0] for row in rows("Files of a data directory"))
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
    assert f'"version":{VERSION}' in PAGE.read_text(encoding="utf-8")


def test_the_example_of_the_metadata_file_can_be_read(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    example = text[text.index('{"format"') : text.index("```", text.index('{"format"'))]
    (tmp_path / FILE_NAME).write_text(example, encoding="utf-8")
    image = LocalStore.open(RealFiles(), tmp_path, BrokerId(0)).image
    assert list(image.topics) == ["flights"]
