"""`klog verify` on directories whose klog-metadata knows of more than is there."""

from pathlib import Path
from shutil import rmtree

import pytest

from klog_broker.runtime.disk.files import RealFiles
from tests.support.cluster.server import make_topic, start
from tests.unit.inspection.test_verify import verify


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """Two data directories of a broker that was stopped, with two partitions each."""
    found = tmp_path / "a", tmp_path / "b"
    broker = start(RealFiles(), data=found)
    make_topic(broker, "t", 4)
    broker.close()
    return found


def test_directories_that_are_whole(directories: tuple[Path, Path]) -> None:
    for directory in directories:
        code, lines = verify(directory)
        assert code == 0
        assert not [line for line in lines if "klog-metadata" in line]


def test_a_missing_folder_is_an_error(directories: tuple[Path, Path]) -> None:
    rmtree(directories[0] / "t-0")
    code, lines = verify(directories[0])
    assert code == 1
    text = "error: klog-metadata: the file assigns t-0 to this directory, but there is no folder"
    assert text in lines


def test_another_missing_directory_is_noted(directories: tuple[Path, Path]) -> None:
    rmtree(directories[1])
    code, lines = verify(directories[0])
    assert code == 0
    text = f"note: klog-metadata: a broker also needs the data directory {directories[1]}, but "
    assert any(line.startswith(text) for line in lines)


def test_klog_metadata_without_logs_is_an_error(directories: tuple[Path, Path]) -> None:
    for path in directories[0].iterdir():
        if path.is_dir():
            rmtree(path)
        elif path.name != "klog-metadata":
            path.unlink()
    code, lines = verify(directories[0])
    assert code == 1
    assert len([line for line in lines if "there is no folder" in line]) == 2
    text = "error: klog-metadata: the directory has no meta.properties with a directory.id"
    assert any(line.startswith(text) for line in lines)
