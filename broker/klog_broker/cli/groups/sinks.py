"""`klog sinks`: manages the progress of exactly-once sinks of Spark's streaming queries, on any
broker with Kafka's protocol."""

from collections import defaultdict
from collections.abc import Sequence

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    say,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.tables import print_table
from klog_broker.cli.groups.sink_rows import print_sink_groups, shown_time, sink_fields
from pyspark_klog.client.admin.groups import delete_group, list_groups
from pyspark_klog.client.admin.sink_listing import find_sinks
from pyspark_klog.client.admin.sink_progress import ProgressRow, SinkGroup, SinkId
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import BrokerError, ErrorCode

_Sinks = dict[SinkId, list[SinkGroup]]

_QUERY = click.argument("query_id", metavar="QUERY_ID")
_NAME = click.option("--name", help="Only the sink with this name (option exactlyOnceName).")
_PREFIX = click.option("--prefix", help="Only sinks with this prefix (option exactlyOncePrefix).")


@click.group("sinks", context_settings=HELP)
def command() -> None:
    """List, describe and delete the progress of exactly-once sinks (docs/exactly-once.md)."""


@command.command("list")
@with_client_options
def list_all(asking: ClientOptions) -> None:
    """List the sinks of streaming queries: for each the number of its tasks, the newest
    micro-batch, and when it was written.

    Batch writes are not listed.
    """
    with asking.client() as client:
        sinks = {sink: groups for sink, groups in _sinks(client).items() if _newest(groups)}
    if asking.as_json:
        print_json([_summary(sink, groups) for sink, groups in sinks.items()])
        return
    rows = []
    for sink, groups in sinks.items():
        newest = _newest(groups)
        batch, written = None, None
        if newest is not None:
            batch, written = newest.batch_id, shown_time(newest.time_ms)
        tasks = sum(group.task is not None for group in groups)
        rows.append((sink.query_id, sink.name, sink.prefix, tasks, batch, written))
    print_table(("query", "name", "prefix", "tasks", "batch", "written"), rows)


@command.command("describe")
@_QUERY
@_NAME
@_PREFIX
@with_client_options
def describe(
    asking: ClientOptions,
    query_id: str,
    name: str | None,
    prefix: str | None,
) -> None:
    """Show the progress rows of a query's sinks: the last micro-batch that each task has
    written."""
    with asking.client() as client:
        sinks = _of_query(client, query_id, name, prefix)
    if asking.as_json:
        print_json([_details(sink, groups) for sink, groups in sinks.items()])
        return
    for number, (sink, groups) in enumerate(sinks.items()):
        if number:
            click.echo()
        click.echo(f"sink {sink.name} of query {sink.query_id}  prefix {sink.prefix}")
        print_sink_groups(groups)


@command.command("delete")
@_QUERY
@_NAME
@_PREFIX
@click.option("--dry-run", is_flag=True, help="Only print the groups that would be deleted.")
@with_client_options
def delete(
    asking: ClientOptions,
    query_id: str,
    name: str | None,
    prefix: str | None,
    dry_run: bool,
) -> None:
    """Delete the stored progress of a query's sinks permanently. The query must be stopped, and
    must not start again."""
    done: list[str] = []
    failures = Failures()
    with asking.client() as client:
        for groups in _of_query(client, query_id, name, prefix).values():
            for group in groups:
                with failures.collect():
                    if not dry_run:
                        delete_group(client, group.group_id)
                    done.append(group.group_id)
    say(asking.as_json, "would delete" if dry_run else "deleted", done)
    failures.raise_collected()


def _sinks(client: BlockingClient) -> _Sinks:
    """Return all sinks, each with the consumer groups that store its progress: one group for each
    task, by task number, then the group that names the run (start) of the query."""
    found: _Sinks = defaultdict(list)
    for group in find_sinks(client, list_groups(client)).values():
        found[group.sink].append(group)
    for groups in found.values():
        groups.sort(key=lambda group: (group.task is None, group.task))
    return dict(sorted(found.items()))


def _of_query(
    client: BlockingClient, query_id: str, name: str | None, prefix: str | None
) -> _Sinks:
    """Return the query's sinks: all, or only those with this name (the sink's option
    exactlyOnceName) and this prefix (its option exactlyOncePrefix).

    :raises BrokerError: if there is no such sink
    """
    sinks = _sinks(client)
    found = {
        sink: groups
        for sink, groups in sinks.items()
        if sink.query_id == query_id and name in (None, sink.name) and prefix in (None, sink.prefix)
    }
    if not found:
        there = ", ".join(sink.stem for sink in sinks) or "none"
        raise BrokerError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"no exactly-once sink of query {query_id} was found (with --name and --prefix, if "
            f"given); all sinks: {there}",
        )
    return found


def _newest(groups: Sequence[SinkGroup]) -> ProgressRow | None:
    rows = (row for group in groups for row in group.rows.values())
    return max(rows, key=lambda row: (row.batch_id, row.time_ms), default=None)


def _summary(sink: SinkId, groups: Sequence[SinkGroup]) -> dict[str, object]:
    newest = _newest(groups)
    return {
        "query": sink.query_id,
        "name": sink.name,
        "prefix": sink.prefix,
        "tasks": sum(group.task is not None for group in groups),
        "batch": None if newest is None else newest.batch_id,
        "written_ms": None if newest is None else newest.time_ms,
    }


def _details(sink: SinkId, groups: Sequence[SinkGroup]) -> dict[str, object]:
    return {**_summary(sink, groups), **sink_fields(groups)}
