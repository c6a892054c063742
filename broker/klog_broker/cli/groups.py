"""`klog groups`: list, describe and delete, on any broker that speaks Kafka's protocol."""

from collections.abc import Mapping, Sequence

import click

from klog_broker.cli.asking import JSON, SERVERS, TIMEOUT, client_settings, print_json, say
from klog_broker.cli.errors import exit_with
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
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

_Positions = Mapping[TopicPartition, tuple[CommittedOffset, int | None]]
"""A group's offset in each partition, and the partition's end; None: there is no such partition."""


@click.group("groups", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, describe and delete consumer groups, and delete their offsets."""


@command.command("list")
@SERVERS
@TIMEOUT
@JSON
def list_all(servers: str, timeout_ms: int, as_json: bool) -> None:
    """List the groups with their states and members."""
    with _client(servers, timeout_ms) as client:
        groups = list_groups(client)
    if as_json:
        print_json([_summary(group) for group in groups])
        return
    rows = [
        (g.group_id, g.state, _or_dash(g.member_count), g.protocol_type, str(g.coordinator_id))
        for g in groups
    ]
    print_table(("group", "state", "members", "protocol", "coordinator"), rows)


@command.command("describe")
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@SERVERS
@TIMEOUT
@JSON
def describe(group_ids: Sequence[str], servers: str, timeout_ms: int, as_json: bool) -> None:
    """Show how far groups have read, and how far that is from the end."""
    with _client(servers, timeout_ms) as client:
        known = {group.group_id: group for group in list_groups(client)}
        for group_id in group_ids:
            if group_id not in known:
                raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        positions = {group_id: _positions(client, group_id) for group_id in group_ids}
    if as_json:
        print_json([_details(known[each], positions[each]) for each in group_ids])
        return
    for number, group_id in enumerate(group_ids):
        if number:
            click.echo()
        group = known[group_id]
        click.echo(f"group {group_id}  {group.state}  members {_or_dash(group.member_count)}")
        columns = ("topic", "partition", "offset", "end", "lag")
        print_table(columns, _position_rows(positions[group_id]))


@command.command("delete")
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...")
@SERVERS
@TIMEOUT
@JSON
def delete(group_ids: Sequence[str], servers: str, timeout_ms: int, as_json: bool) -> None:
    """Delete groups that have no members, with all their offsets, for good."""
    deleted, refused = [], []
    with _client(servers, timeout_ms) as client:
        for group_id in group_ids:
            try:
                delete_group(client, group_id)
                deleted.append(group_id)
            except BrokerError as error:
                refused.append(str(error))
    say(as_json, "deleted", deleted)
    if refused:
        raise KlogError("\n".join(refused))


@command.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@SERVERS
@TIMEOUT
@JSON
def forget(
    group_id: str, topics: Sequence[str], servers: str, timeout_ms: int, as_json: bool
) -> None:
    """Delete a group's offsets in topics that no member of it reads."""
    with _client(servers, timeout_ms) as client:
        infos = Admin(client=client).describe_topics(topics)
        partitions = [
            TopicPartition(name, number) for name in topics for number in infos[name].partitions
        ]
        codes = delete_offsets(client, group_id, partitions)
    by_topic = {partition.topic: code for partition, code in codes.items()}
    say(as_json, "deleted offsets in", [name for name in topics if name not in by_topic])
    if by_topic:
        errors = (
            broker_error(code, f"delete offsets in {topic}") for topic, code in by_topic.items()
        )
        raise KlogError("\n".join(map(str, errors)))


def _client(servers: str, timeout_ms: int) -> BlockingClient:
    try:
        return BlockingClient({"bootstrap.servers": servers, **client_settings(timeout_ms)})
    except KlogError as error:
        exit_with(error)


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
        (topic, str(number), str(at.offset), _or_dash(end), _or_dash(_lag(at, end)))
        for (topic, number), (at, end) in positions.items()
    ]


def _summary(group: Group) -> dict[str, object]:
    return {
        "group": group.group_id,
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
