"""The output about exactly-once sinks of Spark queries, as tables and in JSON."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from klog_broker.cli.common.tables import print_table
from pyspark_klog.client.admin.sink_progress import SinkGroup


def print_sink_groups(groups: Sequence[SinkGroup]) -> None:
    """Print the progress rows of one sink's groups (for each task, the micro-batch that it wrote
    last), and the run marks: which run, one start of the streaming query, last began to commit, and
    with which micro-batch."""
    for mark in (mark for group in groups for mark in group.marks.values()):
        time = shown_time(mark.time_ms)
        click.echo(f"run {mark.run_id} began to commit with batch {mark.batch_id}, {time}")
    rows = [
        (
            *(group.task, partition.topic, row.batch_id, row.run_id),
            *(row.row_count, row.byte_count, shown_time(row.time_ms)),
        )
        for group in groups
        for partition, row in group.rows.items()
    ]
    print_table(("task", "topic", "batch", "run", "rows", "bytes", "written"), rows)


def sink_fields(groups: Sequence[SinkGroup]) -> dict[str, object]:
    """Return, for the output with --json, the micro-batch that each task of one sink wrote last
    (progress rows), and the run of the query that last began to commit (run marks)."""
    marks = [
        {
            "topic": partition.topic,
            "batch": mark.batch_id,
            "run": mark.run_id,
            "written_ms": mark.time_ms,
            "past_runs": list(mark.earlier_run_ids),
        }
        for group in groups
        for partition, mark in group.marks.items()
    ]
    rows = [
        {
            "task": group.task,
            "group": group.group_id,
            "topic": partition.topic,
            "batch": row.batch_id,
            "run": row.run_id,
            "rows": row.row_count,
            "bytes": row.byte_count,
            "hash": f"{row.row_hash:032x}",
            "written_ms": row.time_ms,
        }
        for group in groups
        for partition, row in group.rows.items()
    ]
    return {"marks": marks, "rows": rows}


def shown_time(time_ms: int) -> str:
    """Return a time as text; a number outside the calendar as milliseconds."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):
        return f"{time_ms} ms"
