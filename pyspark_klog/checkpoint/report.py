"""The lines and the JSON of the checkpoint commands."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark_klog.check.items import Item, fail, note, ok
from pyspark_klog.checkpoint.contents import Checkpoint
from pyspark_klog.checkpoint.log_files import BatchEnds
from pyspark_klog.checkpoint.moves import LogRange, Move, Place, place_of
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.time_zones import time_text

Logs = Mapping[TopicPartition, LogRange]

_REMEDIES = {
    Place.DELETED: (
        "its records were deleted by retention or DeleteRecords before the query read them: "
        "`checkpoint move --to-earliest` continues at the first record"
    ),
    Place.BEYOND_END: (
        "the topic was deleted and created again, or has lost records: "
        "`checkpoint move --to-earliest` reads the topic from its beginning"
    ),
    Place.MISSING: (
        "the partition does not exist: check --bootstrap-servers; if its topic was deleted, create "
        "it again, then use `checkpoint move --to-earliest`"
    ),
}


def check_items(checkpoint: Checkpoint, logs: Logs | None) -> Iterator[Item]:
    """The checks of a checkpoint. ``logs`` are None if no brokers were named."""
    faults = checkpoint.faults()
    yield from map(fail, faults)
    last = checkpoint.committed_batch
    if not faults and last is not None:
        yield ok(f"batch {last} is committed")
    if last is None:
        yield note("no batch is committed: the query begins at its starting offsets")
    if checkpoint.planned_batch is not None:
        yield note(
            f"batch {checkpoint.planned_batch} is logged and not committed: the query runs it "
            "again when it starts"
        )
    for operator in checkpoint.operators:
        yield ok(f"state of {operator}")
    if logs is None:
        yield note("no broker was asked: --bootstrap-servers also checks the offsets")
        return
    for text, ends in (("read up to", checkpoint.position), ("planned up to", checkpoint.planned)):
        yield from _offset_items(text, ends, logs)


def _offset_items(text: str, ends: BatchEnds | None, logs: Logs) -> Iterator[Item]:
    for source in ends.sources if ends is not None else ():
        if source.offsets is None:
            yield note(f"source {source.source_id} has no offsets of topics: {source.text[:200]}")
        for partition, offset in sorted((source.offsets or {}).items()):
            log = logs.get(partition)
            place = place_of(offset, log)
            where = f"source {source.source_id}: {partition} is {text} offset {offset}"
            if log is not None:
                where += f"; its log has {log.first} to {log.end}"
            remedy = _REMEDIES.get(place)
            yield ok(where) if remedy is None else fail(f"{where}; {remedy}")


def summary_lines(checkpoint: Checkpoint, logs: Logs | None) -> Iterator[str]:
    """The lines of `checkpoint show`."""
    yield f"query      {checkpoint.query_id or 'unknown: there is no file metadata'}"
    last, position = checkpoint.committed_batch, checkpoint.position
    committed = "no batch is committed"
    if last is not None:
        committed = f"{last}, committed"
        if position is not None:
            committed += f"; it was planned at {time_text(position.planned_at_ms * 1000)}"
    yield f"batch      {committed}"
    if checkpoint.planned_batch is not None:
        yield f"batch      {checkpoint.planned_batch}, not committed: the query runs it again"
    if checkpoint.watermark_ms > 0:
        yield f"watermark  {time_text(checkpoint.watermark_ms * 1000)}"
    for operator in checkpoint.operators:
        yield f"state      {operator}"
    for row in _offset_rows(checkpoint, logs):
        yield f"source {row['source']:<3} {_row_text(row)}"


def _row_text(row: Mapping[str, Any]) -> str:
    if "topic" not in row:
        return f"no offsets of topics: {row['text']}"
    text = f"{row['topic']}-{row['partition']}"
    if row["offset"] is not None:
        text += f" read up to {row['offset']}"
    if row["planned_end"] is not None:
        text += f", planned up to {row['planned_end']}"
    if row["place"] is not None:
        text += f"; {row['place']}"
    if row["first"] is not None:
        text += f", {row['first']} to {row['end']}"
    return text


def summary_json(checkpoint: Checkpoint, logs: Logs | None) -> dict[str, Any]:
    """The JSON of `checkpoint show`."""
    return {
        "query_id": checkpoint.query_id,
        "committed_batch": checkpoint.committed_batch,
        "planned_batch": checkpoint.planned_batch,
        "watermark_ms": checkpoint.watermark_ms,
        "operators": [{"number": each.number, "name": each.name} for each in checkpoint.operators],
        "sources": list(_offset_rows(checkpoint, logs)),
    }


def _offset_rows(checkpoint: Checkpoint, logs: Logs | None) -> Iterator[dict[str, Any]]:
    ends = checkpoint.position or checkpoint.planned
    planned = _offsets_by_source(checkpoint.planned)
    position = _offsets_by_source(checkpoint.position)
    for source in ends.sources if ends is not None else ():
        if source.offsets is None:
            yield {"source": source.source_id, "text": source.text}
        read, later = position.get(source.source_id, {}), planned.get(source.source_id, {})
        for partition in sorted(read.keys() | later.keys()):
            log = None if logs is None else logs.get(partition)
            offset = read.get(partition)
            known = later[partition] if offset is None else offset
            yield {
                "source": source.source_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "planned_end": later.get(partition),
                "first": log.first if log is not None else None,
                "end": log.end if log is not None else None,
                "place": None if logs is None else place_of(known, log).value,
            }


def _offsets_by_source(ends: BatchEnds | None) -> dict[str, Offsets]:
    sources = ends.sources if ends is not None else ()
    return {source.source_id: source.offsets or {} for source in sources}


def move_lines(moves: Sequence[Move], logs: Logs) -> Iterator[str]:
    """The lines of `checkpoint move`: the old and the new offset of each partition."""
    for move in moves:
        old = "not in the checkpoint" if move.old is None else str(move.old)
        log = logs.get(move.partition)
        if move.new is None or log is None:
            new = "removed, because the partition does not exist"
        else:
            new = f"{move.new}; its log has {log.first} to {log.end}"
        yield f"source {move.source_id}: {move.partition}: {old} -> {new}"


def move_json(moves: Sequence[Move]) -> list[dict[str, Any]]:
    """The moves in the JSON of `checkpoint move`."""
    return [
        {
            "source": move.source_id,
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "offset": move.old,
            "new_offset": move.new,
        }
        for move in moves
    ]
