"""`klog topics`: lists, creates, describes, alters and deletes topics, on brokers with Kafka's
protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    say,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.tables import Row, print_table
from pyspark_klog.client.admin.configs import Resource, ResourceType, is_own
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.metadata import TopicInfo
from pyspark_klog.storage.text_files import encode_topic_id


@click.group("topics", context_settings=HELP)
def command() -> None:
    """List, create, describe, alter and delete topics."""


@command.command("list")
@click.option("--internal", is_flag=True, help="List the brokers' internal topics, too.")
@with_client_options
def list_topics(asking: ClientOptions, internal: bool) -> None:
    """List the topics, each with its number of partitions and its replication factor."""
    with asking.admin() as admin:
        topics = admin.describe_topics()
        deleting = admin.deleting_topics()
    infos = [info for info in topics.values() if internal or not info.is_internal]
    if asking.as_json:
        print_json([*map(_summary, infos), *map(_deleting_summary, deleting)])
        return
    rows: list[Row] = [(i.name, len(i.partitions), _replication_factor(i)) for i in infos]
    rows += [(name, "deleting", None) for name in deleting]
    print_table(("topic", "partitions", "replicas"), sorted(rows, key=lambda row: str(row[0])))


@command.command("create")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=click.IntRange(min=1), help="[default: the broker's]")
@click.option("--replication-factor", type=click.IntRange(min=1), help="[default: the broker's]")
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A topic setting; repeatable."
)
@click.option(
    "--validate-only", is_flag=True, help="Only check whether the topics could be created."
)
@click.option("--if-not-exists", is_flag=True, help="Ignore topics that already exist.")
@with_client_options
def create(
    asking: ClientOptions,
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    validate_only: bool,
    if_not_exists: bool,
) -> None:
    """Create topics."""
    settings: dict[str, str | None] = dict(_split(config) for config in configs)
    wanted = [
        NewTopic(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            settings,
        )
        for name in names
    ]
    valid: list[str] = []
    infos: list[TopicInfo] = []
    failures = Failures()
    with asking.admin() as admin:
        if if_not_exists:
            there = set(admin.describe_topics())
            wanted = [topic for topic in wanted if topic.name not in there]
        for topic in wanted:
            with failures.collect():
                admin.create_topics([topic], validate_only=validate_only)
                valid.append(topic.name)
                if not validate_only:
                    infos += admin.describe_topics([topic.name]).values()
    if validate_only:
        say(asking.as_json, "can be created", valid)
    else:
        _say_partitions(asking, "created", infos)
    failures.raise_collected()


@command.command("describe")
@click.argument("names", nargs=-1, metavar="[TOPIC...]")
@click.option(
    "--unavailable-partitions",
    "unavailable",
    is_flag=True,
    help="Only partitions without a leader.",
)
@click.option(
    "--under-replicated-partitions",
    "under_replicated",
    is_flag=True,
    help="Only partitions with replicas that are not in sync.",
)
@with_client_options
def describe(
    asking: ClientOptions, names: Sequence[str], unavailable: bool, under_replicated: bool
) -> None:
    """Show the partitions of topics, their leaders, and the settings that were set for these topics
    (default: all topics)."""
    failures = Failures()
    found: list[tuple[TopicInfo, dict[str, str | None]]] = []
    with asking.admin() as admin:
        deleting = [each for each in admin.deleting_topics() if not names or each in names]
        wanted = [each for each in names if each not in deleting]
        infos = _describe_each(admin, wanted, failures) if wanted or not names else []
        if unavailable or under_replicated:
            infos = _in_trouble(infos, unavailable, under_replicated)
        for info in infos:
            with failures.collect():
                found.append((info, _own_settings(admin, info.name)))
    if asking.as_json:
        details = [_details(info, settings) for info, settings in found]
        print_json([*details, *map(_deleting_summary, deleting)])
    else:
        _print_details(found)
        for name in deleting:
            click.echo(
                f"topic {name}  is being deleted: the deletion waits for a broker or a disk;"
                " the log of the controller names it"
            )
    failures.raise_collected()


@command.command("alter")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="The new number of partitions, more than at present.",
)
@with_client_options
def alter(asking: ClientOptions, names: Sequence[str], partitions: int) -> None:
    """Add partitions to topics. From then on, producers may write records of the same key to
    another partition than before."""
    infos: list[TopicInfo] = []
    failures = Failures()
    with asking.admin() as admin:
        for name in names:
            with failures.collect():
                admin.create_partitions(name, partitions)
                infos += admin.describe_topics([name]).values()
    _say_partitions(asking, "altered", infos)
    failures.raise_collected()


@command.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@with_client_options
def delete(asking: ClientOptions, names: Sequence[str], if_exists: bool) -> None:
    """Delete topics and all their records, permanently and without asking for confirmation."""
    deleted: list[str] = []
    failures = Failures()
    with asking.admin() as admin:
        if if_exists:
            there = set(admin.describe_topics())
            names = [name for name in names if name in there]
        for name in names:
            with failures.collect():
                admin.delete_topics([name])
                deleted.append(name)
    say(asking.as_json, "deleted", deleted)
    failures.raise_collected()


def _describe_each(admin: Admin, names: Sequence[str], failures: Failures) -> list[TopicInfo]:
    """Return the topics with these names, or all topics if there are no names."""
    if not names:
        return list(admin.describe_topics().values())
    infos: list[TopicInfo] = []
    for name in dict.fromkeys(names):
        with failures.collect():
            infos += admin.describe_topics([name]).values()
    return infos


def _own_settings(admin: Admin, topic: str) -> dict[str, str | None]:
    """Return the values of the settings that were set for this topic, by name."""
    return {
        name: entry.value
        for name, entry in sorted(admin.describe_configs(topic).items())
        if is_own(Resource(ResourceType.TOPIC, topic), entry)
    }


def _say_partitions(asking: ClientOptions, what: str, infos: Sequence[TopicInfo]) -> None:
    """Print for each topic ``what`` (such as "created"), the topic's name, and its number of
    partitions; with --json print a list of objects."""
    if asking.as_json:
        print_json([_summary(info) for info in infos])
        return
    for info in infos:
        click.echo(f"{what} {info.name}: {len(info.partitions)} partitions")


def _print_details(found: Sequence[tuple[TopicInfo, Mapping[str, str | None]]]) -> None:
    for number, (info, settings) in enumerate(found):
        if number:
            click.echo()
        click.echo(f"topic {info.name}  id {encode_topic_id(info.topic_id)}")
        for name, value in settings.items():
            click.echo(f"  {name}={value}")
        print_table(("partition", "leader", "epoch", "replicas", "in sync"), _partition_rows(info))


def _in_trouble(
    infos: Sequence[TopicInfo], unavailable: bool, under_replicated: bool
) -> list[TopicInfo]:
    """Return the topics that have partitions of the requested kinds (``unavailable``: without a
    leader; ``under_replicated``), without their other partitions."""
    found = []
    for info in infos:
        partitions = {
            number: partition
            for number, partition in info.partitions.items()
            if (unavailable and partition.leader < 0)
            or (under_replicated and len(partition.in_sync) < len(partition.replicas))
        }
        if partitions:
            found.append(replace(info, partitions=partitions))
    return found


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--config {text}: expected NAME=VALUE, as retention.ms=60000")
    return name, value


def _replication_factor(info: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in info.partitions.values()), default=0)


def _summary(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "topic_id": encode_topic_id(info.topic_id),
        "partitions": len(info.partitions),
        "replication_factor": _replication_factor(info),
        "internal": info.is_internal,
        "deleting": False,
    }


def _deleting_summary(name: str) -> dict[str, object]:
    return {
        "name": name,
        "topic_id": None,
        "partitions": None,
        "replication_factor": None,
        "internal": None,
        "deleting": True,
    }


def _details(info: TopicInfo, configs: Mapping[str, str | None]) -> dict[str, object]:
    partitions = [
        {
            "partition": number,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.in_sync),
        }
        for number, partition in sorted(info.partitions.items())
    ]
    return {**_summary(info), "partitions": partitions, "configs": dict(configs)}


def _partition_rows(info: TopicInfo) -> list[Row]:
    return [
        (
            number,
            "none" if partition.leader < 0 else partition.leader,
            partition.leader_epoch,
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.in_sync)),
        )
        for number, partition in sorted(info.partitions.items())
    ]
