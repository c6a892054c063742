"""Reads a checkpoint: the last committed batch, a batch that is planned, and the operators."""

import json
from dataclasses import dataclass

from pyspark_klog.checkpoint.errors import CheckpointError
from pyspark_klog.checkpoint.files import CheckpointFiles
from pyspark_klog.checkpoint.log_files import BatchEnds, parse_batch_ends, parse_next_watermark
from pyspark_klog.checkpoint.operators import Operator, newest_metadata, parse_operator


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The batches, the position and the operators of a query, as its checkpoint has them."""

    query_id: str | None
    logged: tuple[int, ...]
    """The numbers of the files in the folder offsets, in ascending order."""
    committed: tuple[int, ...]
    """The numbers of the files in the folder commits, in ascending order."""
    position: BatchEnds | None
    """The ends of the last committed batch, at which the query continues; None before the first
    commit."""
    planned: BatchEnds | None
    """The ends of the batch that is logged and not committed, which the query would run again."""
    watermark_ms: int
    """The watermark in ms since 1970; 0 if the query has none."""
    operators: tuple[Operator, ...]

    @property
    def committed_batch(self) -> int | None:
        """The number of the last committed batch."""
        return self.committed[-1] if self.committed else None

    @property
    def planned_batch(self) -> int | None:
        """The number of the batch that is logged and not committed; the last such batch."""
        last = self.committed_batch
        newer = [number for number in self.logged if last is None or number > last]
        return newer[-1] if newer else None

    def faults(self) -> list[str]:
        """Sentences about folders from which Spark could not continue, or not in the usual way."""
        last, planned = self.committed_batch, self.planned_batch
        found = []
        if last is not None and last not in self.logged:
            found.append(
                f"batch {last} is committed, but offsets/{last} does not exist: restore that file, "
                "or use a new checkpointLocation"
            )
        if planned is not None and last is not None and planned > last + 1:
            found.append(
                f"the batches {last + 1} to {planned} are logged and not committed; expected at "
                "most one such batch: start the query once, so that Spark finishes them"
            )
        newest = self.logged[-1] if self.logged else 0
        if newest > 0 and newest - 1 not in self.logged:
            found.append(
                f"offsets/{newest - 1} does not exist, and Spark needs it to continue at batch "
                f"{newest}: restore that file, or use a new checkpointLocation"
            )
        return found


def read_checkpoint(files: CheckpointFiles) -> Checkpoint:
    """Read the files that the commands need.

    :raises CheckpointError: if a file cannot be read, or is not as Spark writes it
    """
    logged, committed = _numbers(files, "offsets"), _numbers(files, "commits")
    last = committed[-1] if committed else None
    position = None if last is None else _ends(files, last)
    newest = logged[-1] if logged else None
    planned = None
    if newest is not None and (last is None or newest > last):
        planned = _ends(files, newest)
    marks = [ends.watermark_ms for ends in (position, planned) if ends is not None]
    if last is not None:
        name = f"commits/{last}"
        marks.append(parse_next_watermark(files.read(name) or "", name))
    return Checkpoint(
        query_id=_query_id(files.read("metadata")),
        logged=logged,
        committed=committed,
        position=position,
        planned=planned,
        watermark_ms=max(marks, default=0),
        operators=tuple(_operator(files, number) for number in _numbers(files, "state")),
    )


def _ends(files: CheckpointFiles, batch: int) -> BatchEnds | None:
    name = f"offsets/{batch}"
    text = files.read(name)
    return None if text is None else parse_batch_ends(text, name)


def _numbers(files: CheckpointFiles, folder: str) -> tuple[int, ...]:
    names = files.names(folder)
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdigit()))


def _query_id(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
        return str(found["id"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(
            f'the file metadata is {text[:60]!r}; expected JSON like {{"id": "..."}} with the '
            "query's id: the file is damaged"
        ) from None


def _operator(files: CheckpointFiles, number: int) -> Operator:
    folder = f"state/{number}/_metadata"
    newest = newest_metadata(files.names(f"{folder}/v2"))
    name = f"{folder}/metadata" if newest is None else f"{folder}/v2/{newest}"
    text = files.read(name)
    return Operator(number, "") if text is None else parse_operator(number, text, name)
