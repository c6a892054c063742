"""`klog groups`: lists, describes, resets and deletes groups, on any broker with Kafka's
protocol."""

from collections.abc import Mapping, Sequence
from itertools import chain

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    say,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.partitions import find_partitions
from klog_broker.cli.common.tables import Row, print_table
from klog_broker.cli.groups.group_rows import (
    GroupView,
    details,
    group_view,
    heading,
    member_count,
    print_members,
    print_positions,
    print_states,
)
from klog_broker.cli.groups.reset_offsets import reset_offsets
from klog_broker.cli.groups.sink_rows import print_sink_groups, sink_fields
from pyspark_klog.client.admin.group_members import DescribedGroup, describe_group
from pyspark_klog.client.admin.groups import (
    Group,
    delete_group,
    delete_offsets,
    list_group_ids,
    list_groups,
)
from pyspark_klog.client.admin.sink_listing import find_sinks
from pyspark_klog.client.admin.sink_progress import SinkGroup
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.coordinators import Coordinator
from pyspark_klog.client.errors import broker_error
from pyspark_klog.errors import BrokerError, ErrorCode


@click.group("groups", context_settings=HELP)
def command() -> None:
    """List, describe and delete consumer groups, and reset or delete their offsets."""


command.add_command(reset_offsets)


@command.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only groups in this state; repeatable.",
)
@with_client_options
def list_all(asking: ClientOptions, states: Sequence[str]) -> None:
    """List the groups with their states and members; without --json, groups that store the progress
    of exactly-once sinks are only counted."""
    with asking.client() as client:
        wanted = {state.lower() for state in states}
        groups = [
            group for group in list_groups(client) if not wanted or group.state.lower() in wanted
        ]
        of_sinks = find_sinks(client, groups)
    if asking.as_json:
        print_json([_summary(group, of_sinks.get(group.group_id)) for group in groups])
        return
    rows: list[Row] = [
        (g.group_id, g.state, g.group_type, g.member_count, g.protocol_type, g.coordinator_id)
        for g in groups
        if g.group_id not in of_sinks
    ]
    print_table(("group", "state", "type", "members", "protocol", "coordinator"), rows)
    if of_sinks:
        sinks = len({group.sink for group in of_sinks.values()})
        click.echo(f"and {len(of_sinks)} groups of {sinks} exactly-once sinks: klog sinks list")


@command.command("describe")
@click.argument("group_ids", nargs=-1, metavar="[GROUP...]")
@click.option("--all-groups", is_flag=True, help="All groups of the cluster.")
@click.option("--members", is_flag=True, help="Show the members instead of the offsets.")
@click.option(
    "--state", is_flag=True, help="Show state, coordinator and assignor, one line per group."
)
@click.option("--verbose", is_flag=True, help="Show epochs, assignments and commit metadata, too.")
@with_client_options
def describe(
    asking: ClientOptions,
    group_ids: Sequence[str],
    all_groups: bool,
    members: bool,
    state: bool,
    verbose: bool,
) -> None:
    """Show each group's committed offsets, lag and members.

    For a group that stores the progress of an exactly-once sink, show the micro-batch that was
    written last. The lag is `-` if there is no committed offset, or the partition has no leader.
    """
    if all_groups == bool(group_ids):
        raise click.UsageError("expected GROUP..., or --all-groups")
    if members and state:
        raise click.UsageError("--members and --state: expected one of them")
    groups: list[DescribedGroup] = []
    of_sinks: dict[str, SinkGroup] = {}
    views: dict[str, GroupView] = {}
    failures = Failures()
    with asking.client() as client:
        for group_id in list_group_ids(client) if all_groups else group_ids:
            with failures.collect():
                groups.append(_describe(client, group_id))
        with failures.collect():
            of_sinks = find_sinks(client, map(_listed, groups))
        if asking.as_json or not (members or state):
            groups, views = _with_views(client, groups, of_sinks, failures)
    if asking.as_json:
        print_json([_details(each, of_sinks, views) for each in groups])
    elif state:
        if groups:
            print_states(groups, verbose)
    else:
        for number, group in enumerate(groups):
            if number:
                click.echo()
            if members:
                print_members(group, verbose)
            elif group.group_id in of_sinks:
                click.echo(heading(group))
                print_sink_groups([of_sinks[group.group_id]])
            else:
                print_positions(views[group.group_id], verbose)
    failures.raise_collected()


@command.command("delete")
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@with_client_options
def delete(asking: ClientOptions, group_ids: Sequence[str]) -> None:
    """Delete groups without members, permanently and with all their offsets."""
    deleted: list[str] = []
    failures = Failures()
    with asking.client() as client:
        for group_id in group_ids:
            with failures.collect():
                delete_group(client, group_id)
                deleted.append(group_id)
    say(asking.as_json, "deleted", deleted)
    failures.raise_collected()


@command.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:0,1]...")
@with_client_options
def forget(asking: ClientOptions, group_id: str, topics: Sequence[str]) -> None:
    """Delete a group's offsets in topics or partitions that no member of the group is reading."""
    failures = Failures()
    with asking.client() as client:
        found = find_partitions(client, topics, failures)
        partitions = {*chain.from_iterable(found.values())}
        codes = delete_offsets(client, group_id, partitions) if partitions else {}
    by_topic = {partition.topic: code for partition, code in codes.items()}
    done = [text for text in found if text.partition(":")[0] not in by_topic]
    say(asking.as_json, "deleted offsets in", done)
    failures.add(
        broker_error(code, f"delete offsets in {topic}") for topic, code in by_topic.items()
    )
    failures.raise_collected()


def _describe(client: BlockingClient, group_id: str) -> DescribedGroup:
    """Describe the group; return only the fields of ListGroups if klog's client does not support
    the group's type."""
    try:
        return describe_group(client, group_id)
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        for listed in list_groups(client):
            if listed.group_id == group_id and listed.member_count is None:
                address = client.view.brokers[listed.coordinator_id]
                return DescribedGroup(
                    *(group_id, listed.group_type, listed.state, listed.protocol_type, ""),
                    Coordinator(listed.coordinator_id, address),
                )
        raise


def _with_views(
    client: BlockingClient,
    groups: Sequence[DescribedGroup],
    of_sinks: Mapping[str, SinkGroup],
    failures: Failures,
) -> tuple[list[DescribedGroup], dict[str, GroupView]]:
    """Return the groups whose offsets could be read, and the views of these groups. A group that
    stores the progress of a sink has no view."""
    found: list[DescribedGroup] = []
    views: dict[str, GroupView] = {}
    for group in groups:
        with failures.collect():
            if group.group_id not in of_sinks:
                views[group.group_id] = group_view(client, group)
            found.append(group)
    return found, views


def _listed(group: DescribedGroup) -> Group:
    return Group(
        group.group_id,
        group.state,
        group.protocol_type,
        group.coordinator.broker_id,
        member_count(group),
        group_type=group.group_type,
    )


def _details(
    group: DescribedGroup, of_sinks: dict[str, SinkGroup], views: dict[str, GroupView]
) -> dict[str, object]:
    of_sink = of_sinks.get(group.group_id)
    summary = _summary(_listed(group), of_sink)
    if of_sink is not None:
        return {**summary, **sink_fields([of_sink])}
    return {**summary, **details(views[group.group_id])}


def _summary(group: Group, of_sink: SinkGroup | None = None) -> dict[str, object]:
    return {
        "group": group.group_id,
        "kind": "consumer" if of_sink is None else "sink",
        "type": group.group_type,
        "state": group.state,
        "members": group.member_count,
        "protocol": group.protocol_type,
        "coordinator": group.coordinator_id,
    }
