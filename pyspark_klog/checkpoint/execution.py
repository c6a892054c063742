"""Carries out a move: keeps a copy of the files that change, and replaces them one by one.

A move changes the last committed batch's file in the folder offsets, whose ends are the position
at which the query continues. A new batch would not do, because Spark would look for the version of
the state that this batch should have written. Each step leaves a checkpoint from which Spark can
continue, so after a crash the checkpoint is as before or moved, and the command can be run again.
"""

from collections.abc import Sequence

from pyspark_klog.checkpoint.contents import Checkpoint, read_checkpoint
from pyspark_klog.checkpoint.errors import MoveRefused
from pyspark_klog.checkpoint.files import CheckpointFiles
from pyspark_klog.checkpoint.moves import Move, with_moves

_BACKUPS = "_klog_backups"
"""The folder of copies in a checkpoint; Spark does not look into it."""


def execute_moves(
    files: CheckpointFiles, seen: Checkpoint, moves: Sequence[Move], backup_name: str
) -> str:
    """Change the checkpoint; return the folder with copies of the changed files.

    ``seen`` is the checkpoint for which the moves were planned.

    :raises MoveRefused: if the checkpoint has changed since then, so a query is running
    """
    _check_unchanged(files, seen)
    assert seen.position is not None
    backup = f"{_BACKUPS}/{backup_name}"
    position_name = f"offsets/{seen.committed_batch}"
    planned_name = f"offsets/{seen.planned_batch}"
    _copy(files, position_name, backup)
    if seen.planned is not None:
        _copy(files, planned_name, backup)
        # Without its planned batch the checkpoint is right with the old position and the new one.
        files.delete(planned_name)
    files.replace(position_name, with_moves(seen.position, moves).text())
    if seen.planned is not None:
        # The batch keeps its number and the ends of other partitions, because a sink may have
        # stored the batch already, and would ignore other records with the same number.
        files.replace(planned_name, with_moves(seen.planned, moves).text())
    now = read_checkpoint(files)
    if (now.logged, now.committed) != (seen.logged, seen.committed):
        raise MoveRefused(
            f"a query has logged a batch during the move: stop it, and copy the files of "
            f"{files.path}/{backup} back to their folder"
        )
    return f"{files.path}/{backup}"


def _check_unchanged(files: CheckpointFiles, seen: Checkpoint) -> None:
    if read_checkpoint(files) != seen:
        raise MoveRefused(
            "the checkpoint has changed while the move was planned: a query is running; stop it, "
            "and run the command again"
        )


def _copy(files: CheckpointFiles, name: str, backup: str) -> None:
    text = files.read(name)
    if text is None:
        raise MoveRefused(f"{name} has vanished while the move was planned: is a query running?")
    files.replace(f"{backup}/{name}", text)
