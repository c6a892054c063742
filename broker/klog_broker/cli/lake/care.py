"""`klog lake status`, `sweep` and `restart`: look at tables, tidy them, take them on."""

from typing import Any

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.tables import Row, print_table
from klog_broker.cli.lake.options import (
    TableNames,
    from_option,
    read_committed,
    start_offsets,
    with_tables,
)
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.ids import TopicPartition
from pyspark_klog.lake_tables.border import border_text
from pyspark_klog.lake_tables.copier import Backlog, CopySettings, TopicCopier
from pyspark_klog.lake_tables.errors import LakeError
from pyspark_klog.lake_tables.table import LakeTable

_DAY_MS = 86_400_000
_PARTITION_COLUMNS = ("topic", "partition", "border", "end", "records behind", "bytes behind")
_TABLE_COLUMNS = ("table", "records", "files", "bytes", "snapshots", "orphans", "age in seconds")


@click.command("status", context_settings=HELP)
@with_tables
@with_client_options
def status(asking: ClientOptions, tables: TableNames) -> None:
    """Show how far tables are behind their topics.

    The border is the next offset to copy, the end is the offset before which all records are
    committed or aborted. Bytes behind are estimated from the table's files.
    """
    found: list[dict[str, Any]] = []
    with read_committed(asking) as client:
        for topic in tables.names:
            table = tables.open(topic)
            backlog = _look(
                TopicCopier(client, topic, table, CopySettings(), start_offsets("latest"))
            )
            backlog.head.origin.check(backlog.origin, table.name)
            found.append(_described(topic, table, backlog))
    if asking.as_json:
        print_json(found)
        return
    print_table(
        _PARTITION_COLUMNS,
        [
            (each["topic"], *(row[name.replace(" ", "_")] for name in _PARTITION_COLUMNS[1:]))
            for each in found
            for row in each["partitions"]
        ],
    )
    click.echo()
    rows: list[Row] = [
        tuple(each[name.replace(" ", "_")] for name in _TABLE_COLUMNS) for each in found
    ]
    print_table(_TABLE_COLUMNS, rows)


def _look(copier: TopicCopier) -> Backlog:
    backlog = copier.look()
    if backlog is None:
        raise LakeError(
            f"{copier.table.name} does not exist: klog lake run makes it; or correct --to"
        )
    return backlog


def _described(topic: str, table: LakeTable, backlog: Backlog) -> dict[str, Any]:
    files = table.files()
    records, size_bytes = sum(f.records for f in files), sum(f.size_bytes for f in files)
    a_record = size_bytes / records if records else None
    border = backlog.border
    return {
        "topic": topic,
        "table": table.name,
        "records": records,
        "files": len(files),
        "bytes": size_bytes,
        "snapshots": table.versions(),
        "orphans": len(table.orphans(epoch_ms())),
        "age_in_seconds": max(epoch_ms() - backlog.head.committed_ms, 0) // 1000,
        "partitions": [
            {
                "partition": number,
                "border": border[number],
                "end": end,
                "records_behind": end - border[number],
                "bytes_behind": None
                if a_record is None
                else round(max(end - border[number], 0) * a_record),
            }
            for number, end in sorted(backlog.end.items())
        ],
    }


@click.command("sweep", context_settings=HELP)
@with_tables
@click.option("--dry-run", is_flag=True, help="Print the files, and delete nothing.")
def sweep(tables: TableNames, dry_run: bool) -> None:
    """Delete files of klog lake that no snapshot of a table names, and that are older than a day.

    Such files are left when a writer is killed, or when another writer commits first.
    """
    for topic in tables.names:
        table = tables.open(topic)
        if table.load() is None:
            raise LakeError(f"{table.name} does not exist: correct --topic or --to")
        for path in table.orphans(epoch_ms() - _DAY_MS):
            if not dry_run:
                table.delete(path)
            click.echo(f"{'would delete' if dry_run else 'deleted'} {path}")


@click.command("restart", context_settings=HELP)
@with_tables
@from_option
@with_client_options
def restart(asking: ClientOptions, tables: TableNames, start_text: str) -> None:
    """Let tables go on with topics that were deleted and created again, or that are in another
    cluster. The old rows stay.

    Rows of the old and of the new topic may then have the same partition and offset.
    """
    start = start_offsets(start_text)
    with read_committed(asking) as client:
        for topic in tables.names:
            table = tables.open(topic)
            backlog = _look(TopicCopier(client, topic, table, CopySettings(), start))
            old, new = backlog.head.origin, backlog.origin
            if old == new and not backlog.ahead:
                raise LakeError(
                    f"{table.name} already has the records of topic {topic}, id {new.topic_id} of "
                    f"cluster {new.cluster_id}: klog lake run goes on with it"
                )
            partitions = [TopicPartition(topic, number) for number in sorted(backlog.end)]
            found = start(client, partitions)
            border = {each.partition: found[each] for each in partitions}
            table.restart(new, border)
            click.echo(
                f"{table.name}: topic id {old.topic_id} of cluster {old.cluster_id} until now, "
                f"{new.topic_id} of {new.cluster_id} from {border_text(border)} on"
            )
