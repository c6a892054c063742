"""A move of a checkpoint's files: what a crash leaves, and what a running query does to it."""

import json
from pathlib import Path

import pytest

from pyspark_klog.checkpoint.contents import read_checkpoint
from pyspark_klog.checkpoint.errors import CheckpointError, MoveRefused
from pyspark_klog.checkpoint.execution import execute_moves
from pyspark_klog.checkpoint.files import LocalFiles, open_files
from pyspark_klog.checkpoint.moves import Move
from pyspark_klog.ids import TopicPartition
from tests.support.spark.checkpoints import batches, offsets_of, write_peers_checkpoint

MOVES = [Move("0", TopicPartition("a", 0), 5, 9)]


class CrashAfter(LocalFiles):
    """Fails after a number of changes, as if the process had been killed."""

    def __init__(self, root: Path, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def replace(self, name: str, text: str) -> None:
        self._count()
        super().replace(name, text)

    def delete(self, name: str) -> None:
        self._count()
        super().delete(name)

    def _count(self) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Batch 1 is committed, and batch 2 is planned."""
    ends = [{"a": {"0": 3, "1": 1}}, {"a": {"0": 5, "1": 2}}, {"a": {"0": 7, "1": 4}}]
    write_peers_checkpoint(tmp_path, {"a": {"0": 0}}, ends, committed=2)
    return tmp_path


@pytest.fixture
def committed(folder: Path) -> Path:
    (folder / "offsets" / "2").unlink()
    return folder


def test_the_last_committed_batch_ends_at_the_new_place(committed: Path) -> None:
    before = {name: (committed / "offsets" / name).read_text() for name in ("0", "1")}
    (committed / "offsets" / ".1.crc").write_bytes(b"of the old text")
    files = LocalFiles(committed)
    backup = execute_moves(files, read_checkpoint(files), MOVES, "now")
    assert offsets_of(committed, 1) == {"a": {"0": 9, "1": 2}}
    assert batches(committed) == ([0, 1], [0, 1])
    assert not (committed / "offsets" / ".1.crc").exists()
    assert (committed / "offsets" / "0").read_text() == before["0"]
    assert (Path(backup) / "offsets" / "1").read_text() == before["1"]


def test_a_planned_batch_keeps_its_number_and_reads_only_what_was_not_moved(folder: Path) -> None:
    files = LocalFiles(folder)
    execute_moves(files, read_checkpoint(files), MOVES, "now")
    assert offsets_of(folder, 1) == {"a": {"0": 9, "1": 2}}
    assert offsets_of(folder, 2) == {"a": {"0": 9, "1": 4}}
    assert batches(folder) == ([0, 1, 2], [0, 1])


@pytest.mark.parametrize("changes", range(5))
def test_a_crash_leaves_a_checkpoint_that_can_be_moved_again(folder: Path, changes: int) -> None:
    old, new = {"a": {"0": 5, "1": 2}}, {"a": {"0": 9, "1": 2}}
    crashing = CrashAfter(folder, changes)
    with pytest.raises(KeyboardInterrupt):
        execute_moves(crashing, read_checkpoint(crashing), MOVES, "now")
    is_planned = batches(folder)[0] == [0, 1, 2]
    assert offsets_of(folder, 1) in ((old,) if is_planned else (old, new))
    files = LocalFiles(folder)
    execute_moves(files, read_checkpoint(files), MOVES, "later")
    assert offsets_of(folder, 1) == new


def test_a_query_that_logs_a_batch_meanwhile_is_noticed(committed: Path) -> None:
    files = LocalFiles(committed)
    seen = read_checkpoint(files)
    files.replace("offsets/2", (committed / "offsets" / "1").read_text())
    with pytest.raises(MoveRefused, match="a query is running; stop it"):
        execute_moves(files, seen, MOVES, "now")
    assert offsets_of(committed, 1) == {"a": {"0": 5, "1": 2}}


def test_a_query_that_logs_a_batch_during_the_move_is_noticed(committed: Path) -> None:
    class Racing(LocalFiles):
        def replace(self, name: str, text: str) -> None:
            super().replace(name, text)
            if name == "offsets/1":
                super().replace("offsets/2", text)

    files = Racing(committed)
    with pytest.raises(MoveRefused, match=r"copy the files of .*_klog_backups/now back"):
        execute_moves(files, read_checkpoint(files), MOVES, "now")


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no checkpoint of a streaming query: expected"):
        open_files(str(tmp_path / "nowhere"))


def test_a_local_path_may_have_the_scheme_file(committed: Path) -> None:
    for path in (str(committed), f"file:{committed}", f"file://{committed}"):
        assert read_checkpoint(open_files(path)).committed_batch == 1


def test_operators_without_metadata_are_unknown(committed: Path) -> None:
    (committed / "state" / "0" / "0").mkdir(parents=True)
    (operator,) = read_checkpoint(LocalFiles(committed)).operators
    assert "unknown" in str(operator)


def test_a_damaged_file_metadata_is_named(committed: Path) -> None:
    (committed / "metadata").write_text(json.dumps([]))
    with pytest.raises(CheckpointError, match="the file metadata is '\\[\\]'; expected JSON"):
        read_checkpoint(LocalFiles(committed))
