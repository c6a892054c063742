"""`klog groups reset-offsets`: changes the committed offsets of groups without members."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.partitions import check_topics, named_partitions
from klog_broker.cli.common.tables import Row, print_table
from klog_broker.cli.groups.offset_strategies import (
    OffsetPlan,
    Strategy,
    plan,
    read_csv,
    within_log,
)
from pyspark_klog.client.admin.group_members import describe_group
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from pyspark_klog.client.admin.reset_times import time_of_datetime, time_of_duration
from pyspark_klog.client.admin.sink_progress import parse_sink_id
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

_Done = list[tuple[str, OffsetPlan, dict[TopicPartition, int]]]
"""For each group: its id, the new offsets (the plan), and the offsets that the group had committed
before the command."""

_LONGEST = 2**63 - 1
_OFFSET = click.IntRange(-_LONGEST, _LONGEST)

_HELP = """Change the committed offsets of groups that have no members.

Shows the new offsets, and changes nothing without --execute. An offset outside of a partition's
log becomes the nearer end of the log; a time after the last record becomes the end.
"""


@click.command("reset-offsets", help=_HELP, context_settings=HELP)
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="All partitions in which the group has an offset.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option(
    "--to-current", is_flag=True, help="To the present offset, or to the end without one."
)
@click.option("--to-offset", type=_OFFSET, metavar="N", help="To an offset.")
@click.option(
    "--shift-by", type=_OFFSET, metavar="N", help="Forward by N offsets, or back if N is negative."
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="To a time: 2026-01-31T23:59:59.000 (UTC, or a zone: +02:00).",
)
@click.option("--by-duration", metavar="SPAN", help="To a time this long ago: P7D, PT1H30M.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="To the offsets in a file that --export wrote.",
)
@click.option("--execute", is_flag=True, help="Change the offsets.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets, as without --execute.")
@click.option(
    "--export", is_flag=True, help="Print CSV for --from-file, in the format of Kafka's tool."
)
@with_client_options
def reset_offsets(
    asking: ClientOptions,
    group_ids: Sequence[str],
    topics: Sequence[str],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    from_file: Path | None,
    **ways: object,
) -> None:
    """Run `klog groups reset-offsets`; the help text is _HELP."""
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run: expected one of them")
    strategy = _strategy(from_file, ways)
    if (from_file is None) != (bool(topics) != all_topics) or (topics and all_topics):
        raise click.UsageError("expected one of --topic and --all-topics, or --from-file")
    from_csv = {} if from_file is None else read_csv(from_file, list(group_ids))
    done: _Done = []
    failures = Failures()
    with asking.client() as client:
        named = named_partitions(client, topics)
        for group_id in dict.fromkeys(group_ids):
            with failures.collect():
                _check_idle(client, group_id)
                now = {each: at.offset for each, at in committed_offsets(client, group_id).items()}
                if strategy is None:
                    made = _as_given(client, from_csv[group_id])
                else:
                    wanted = _committed_in(group_id, now) if all_topics else named
                    made = plan(client, strategy, wanted, now)
                if execute:
                    _commit(client, group_id, made)
                done.append((group_id, made, now))
    for _, made, _ in done:
        for warning in made.warnings:
            click.echo(f"klog: {warning}", err=True)
    if export:
        _print_csv(done, names_groups=len(set(group_ids)) > 1)
    elif done or asking.as_json:
        _print(asking.as_json, execute, done)
    failures.raise_collected()


def _strategy(from_file: Path | None, ways: dict[str, object]) -> Strategy | None:
    """Return the strategy that the options give; None if the offsets come from a file.

    :raises UsageError: unless exactly one strategy, or a file, was given
    """
    given = {
        name: value for name, value in ways.items() if value is not None and value is not False
    }
    if len(given) + (from_file is not None) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise click.UsageError(f"expected one of {names}, --from-file")
    if from_file is not None:
        return None
    ((name, value),) = given.items()
    if name == "to_datetime":
        return Strategy(to_time_ms=time_of_datetime(str(value)))
    if name == "by_duration":
        return Strategy(to_time_ms=time_of_duration(str(value)))
    return Strategy(**given)  # type: ignore[arg-type]


def _check_idle(client: BlockingClient, group_id: str) -> None:
    """Check that the group has no members, and that its offsets are not the progress of a sink.

    :raises KlogError: if the group has members or belongs to an exactly-once sink
    """
    if parse_sink_id(group_id) is not None:
        raise KlogError(
            f"group {group_id} stores the progress of an exactly-once sink: its offsets are not "
            "positions (klog sinks describe shows them)"
        )
    try:
        group = describe_group(client, group_id)
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return  # no such group yet: the commit of its first offsets creates it
    if not group.is_idle:
        raise _busy(group_id, f"its state is {group.state}, its member count {len(group.members)}")


def _busy(group_id: str, why: str) -> KlogError:
    return KlogError(
        f"the offsets of group {group_id} cannot be reset while it has members: {why}; stop its "
        "consumers first (a killed one leaves after its session.timeout.ms)"
    )


def _committed_in(group_id: str, now: dict[TopicPartition, int]) -> list[TopicPartition]:
    if not now:
        raise KlogError(f"group {group_id} has no offsets: name topics with --topic")
    return sorted(now)


def _as_given(client: BlockingClient, offsets: dict[TopicPartition, int]) -> OffsetPlan:
    check_topics(client, sorted({partition.topic for partition in offsets}))
    for partition in offsets:
        if not client.view.has_partition(partition):
            raise TopicMissing(f"{partition} does not exist")
    return within_log(client, offsets)


def _commit(client: BlockingClient, group_id: str, made: OffsetPlan) -> None:
    offsets = {each: CommittedOffset(offset) for each, offset in made.offsets.items()}
    try:
        commit_offsets(client, group_id, offsets)
    except BrokerError as error:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            raise _busy(group_id, "a member has just joined") from error
        raise


def _print(as_json: bool, execute: bool, done: _Done) -> None:
    rows: list[Row] = [
        (group_id, *partition, now.get(partition), offset)
        for group_id, made, now in done
        for partition, offset in made.offsets.items()
    ]
    if as_json:
        names = ("group", "topic", "partition", "offset", "new_offset")
        entries = [dict(zip(names, row, strict=True)) for row in rows]
        print_json({"executed": execute, "offsets": entries})
        return
    print_table(("group", "topic", "partition", "offset", "new offset"), rows)
    if not execute:
        click.echo("klog: nothing was changed; add --execute to change the offsets", err=True)


def _print_csv(done: _Done, *, names_groups: bool) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group_id, made, _ in done:
        for partition, offset in made.offsets.items():
            writer.writerow((*((group_id,) if names_groups else ()), *partition, offset))
    click.echo(text.getvalue(), nl=False)
