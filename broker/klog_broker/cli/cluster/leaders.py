"""`klog leaders`: elects leaders of partitions, on any cluster with Kafka's protocol."""

from collections.abc import Sequence
from itertools import chain

import click

from klog_broker.cli.common.client_options import (
    HELP,
    ClientOptions,
    print_json,
    with_client_options,
)
from klog_broker.cli.common.failures import Failures
from klog_broker.cli.common.partitions import find_partitions
from klog_broker.cli.common.tables import print_table
from pyspark_klog.client.admin.leader_election import ElectionResult, elect_leaders
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition

_RESULTS = {ErrorCode.NONE: "elected", ErrorCode.ELECTION_NOT_NEEDED: "not needed"}
_NOT_NEEDED = ElectionResult(ErrorCode.ELECTION_NOT_NEEDED)
_HELP = """Elect leaders of partitions, and show the result for each partition.

The preferred leader, a partition's first replica, is elected if it is alive and in sync. Needs
Kafka 2.2 or later, with --unclean 2.4.
"""


@click.group("leaders", context_settings=HELP)
def command() -> None:
    """Elect leaders of partitions."""


@command.command("elect", help=_HELP)
@click.argument("texts", nargs=-1, metavar="[TOPIC[:PARTITION,...]...]")
@click.option("--all", "all_partitions", is_flag=True, help="All partitions of all topics.")
@click.option(
    "--unclean",
    is_flag=True,
    help="For partitions without a leader, elect a live replica even if it is not in sync. Records "
    "that it lacks are lost.",
)
@with_client_options
def elect(asking: ClientOptions, texts: Sequence[str], all_partitions: bool, unclean: bool) -> None:
    """Run `klog leaders elect`; the help text is _HELP."""
    if bool(texts) == all_partitions:
        raise click.UsageError("expected either TOPIC..., or --all")
    failures = Failures()
    found: dict[TopicPartition, ElectionResult] = {}
    with asking.client() as client:
        if all_partitions:
            found = _elect_all(client, unclean)
        else:
            named = {*chain.from_iterable(find_partitions(client, texts, failures).values())}
            if named:
                found = elect_leaders(client, named, unclean=unclean)
    rows = [(*each, _shown(found[each])) for each in sorted(found)]
    if asking.as_json:
        names = ("topic", "partition", "result")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows or not failures:
        print_table(("topic", "partition", "result"), rows)
    failures.add(
        BrokerError(result.code, f"{each}: {result.message or result.code.message}")
        for each, result in sorted(found.items())
        if result.code not in _RESULTS
    )
    failures.raise_collected()


def _elect_all(client: BlockingClient, unclean: bool) -> dict[TopicPartition, ElectionResult]:
    """Elect leaders of all partitions. The response lacks the partitions that need no election: add
    them, from the metadata before the election."""
    before = client.refresh(None).topics.values()
    partitions = [
        TopicPartition(each.name, number) for each in before for number in each.partitions
    ]
    found = elect_leaders(client, None, unclean=unclean)
    return dict.fromkeys(partitions, _NOT_NEEDED) | found


def _shown(result: ElectionResult) -> str:
    return _RESULTS.get(result.code, result.code.name)
