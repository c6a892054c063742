"""`klog groups`: list, describe and delete, on any broker that speaks Kafka's protocol."""

from collections.abc import Mapping, Sequence

import click

from klog_broker.cli.asking import HELP, Asking, asks_brokers, print_json, say
from klog_broker.cli.sink_rows import print_sink_groups, sink_fields
from klog_broker.cli.tables import Row, print_table
from pyspark_klog.client.admin import Admin
from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.errors import broker_error
from pyspark_klog.client.groups import (
    CommittedOffset,
    Group,
    committed_offsets,
    delete_group,
    delete_offsets,
    list_groups,
)
from pyspark_klog.client.sink_listing import find_sinks
from pyspark_klog.client.sinks import SinkGroup
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

_Positions = Mapping[TopicPartition, tuple[CommittedOffset, int | None]]
"""A group's offset in each partition, and the partition's end; None: there is no such partition."""


@click.group("groups", context_settings=HELP)
def command() -> None:
    """List, describe and delete consumer groups, and delete their offsets."""


@command.command("list")
@asks_brokers
def list_all(asking: Asking) -> None:
    """List the groups with their states and members; those of exactly-once sinks are counted."""
    with asking.client() as client:
        groups = list_groups(client)
        of_sinks = find_sinks(client, groups)
    if asking.as_json:
        print_json([_summary(group, of_sinks.get(group.group_id)) for group in groups])
        return
    rows = [
        (g.group_id, g.state, g.member_count, g.protocol_type, g.coordinator_id)
        for g in groups
        if g.group_id not in of_sinks
    ]
    print_table(("group", "state", "members", "protocol", "coordinator"), rows)
    if of_sinks:
        sinks = len({group.sink for group in of_sinks.values()})
        click.echo(f"and {len(of_sinks)} groups of {sinks} exactly-once sinks: klog sinks list")


@command.command("describe")
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@asks_brokers
def describe(asking: Asking, group_ids: Sequence[str]) -> None:
    """Show how far groups have read, and how far that is from the end.

    Of a group of an exactly-once sink, its rows.
    """
    with asking.client() as client:
        known = {group.group_id: group for group in list_groups(client)}
        for group_id in group_ids:
            if group_id not in known:
                raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        of_sinks = find_sinks(client, [known[group_id] for group_id in group_ids])
        positions = {
            group_id: _positions(client, group_id)
            for group_id in group_ids
            if group_id not in of_sinks
        }
    if asking.as_json:
        print_json(
            [
                _sink_details(known[each], of_sinks[each])
                if each in of_sinks
                else _details(known[each], positions[each])
                for each in group_ids
            ]
        )
        return
    for number, group_id in enumerate(group_ids):
        if number:
            click.echo()
        group = known[group_id]
        click.echo(f"group {group_id}  {group.state}  members {_or_dash(group.member_count)}")
        if group_id in of_sinks:
            print_sink_groups([of_sinks[group_id]])
            continue
        columns = ("topic", "partition", "offset", "end", "lag")
        print_table(columns, _position_rows(positions[group_id]))


@command.command("delete")
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@asks_brokers
def delete(asking: Asking, group_ids: Sequence[str]) -> None:
    """Delete groups that have no members, with all their offsets, for good."""
    deleted, refused = [], []
    with asking.client() as client:
        for group_id in group_ids:
            try:
                delete_group(client, group_id)
                deleted.append(group_id)
            except BrokerError as error:
                refused.append(str(error))
    say(asking.as_json, "deleted", deleted)
    if refused:
        raise KlogError("\n".join(refused))


@command.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@asks_brokers
def forget(asking: Asking, group_id: str, topics: Sequence[str]) -> None:
    """Delete a group's offsets in topics that no member of it reads."""
    with asking.client() as client:
        infos = Admin(client=client).describe_topics(topics)
        partitions = [
            TopicPartition(name, number) for name in topics for number in infos[name].partitions
        ]
        codes = delete_offsets(client, group_id, partitions)
    by_topic = {partition.topic: code for partition, code in codes.items()}
    say(asking.as_json, "deleted offsets in", [name for name in topics if name not in by_topic])
    if by_topic:
        errors = (
            broker_error(code, f"delete offsets in {topic}") for topic, code in by_topic.items()
        )
        raise KlogError("\n".join(map(str, errors)))


def _positions(client: BlockingClient, group_id: str) -> _Positions:
    committed = committed_offsets(client, group_id)
    view = client.refresh({partition.topic for partition in committed})
    ends = list_offsets(client, {each: LATEST for each in committed if view.has_partition(each)})
    return {
        each: (at, ends[each].offset if each in ends else None)
        for each, at in sorted(committed.items())
    }


def _lag(at: CommittedOffset, end: int | None) -> int | None:
    return None if end is None else max(end - at.offset, 0)


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _position_rows(positions: _Positions) -> list[Row]:
    return [
        (topic, number, at.offset, end, _lag(at, end))
        for (topic, number), (at, end) in positions.items()
    ]


def _summary(group: Group, of_sink: SinkGroup | None = None) -> dict[str, object]:
    return {
        "group": group.group_id,
        "kind": "consumer" if of_sink is None else "sink",
        "state": group.state,
        "members": group.member_count,
        "protocol": group.protocol_type,
        "coordinator": group.coordinator_id,
    }


def _details(group: Group, positions: _Positions) -> dict[str, object]:
    rows = [
        {
            "topic": topic,
            "partition": number,
            "offset": at.offset,
            "end": end,
            "lag": _lag(at, end),
            "metadata": at.metadata,
        }
        for (topic, number), (at, end) in positions.items()
    ]
    return {**_summary(group), "offsets": rows}


def _sink_details(group: Group, of_sink: SinkGroup) -> dict[str, object]:
    return {**_summary(group, of_sink), **sink_fields([of_sink])}
