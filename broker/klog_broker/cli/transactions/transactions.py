"""`klog transactions`: lists, describes and aborts transactions, on any broker with Kafka's
protocol."""

from collections.abc import Mapping, Sequence
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
from klog_broker.cli.common.tables import NOTHING, Row, print_table
from klog_broker.cli.groups.sink_rows import shown_time
from klog_broker.cli.transactions.hanging_transactions import abort, find_hanging
from pyspark_klog.client.admin.hanging_transactions import active_producers
from pyspark_klog.client.admin.transaction_descriptions import TransactionDescription
from pyspark_klog.client.admin.transaction_descriptions import describe_transaction as describe_id
from pyspark_klog.client.admin.transaction_listing import TransactionFilter, list_transactions
from pyspark_klog.client.clock import epoch_ms


@click.group("transactions", context_settings=HELP)
def command() -> None:
    """List, describe and abort transactions (Kafka 3.0 or newer)."""


command.add_command(abort)
command.add_command(find_hanging)


@command.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="A state such as Ongoing; repeatable."
)
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=int,
    metavar="N",
    help="A producer; repeatable.",
)
@click.option(
    "--longer-than", type=int, metavar="MS", help="Open for longer than this (Kafka 3.8)."
)
@click.option("--pattern", metavar="REGEX", help="Ids that match a regular expression (Kafka 4.1).")
@with_client_options
def list_all(
    asking: ClientOptions,
    states: Sequence[str],
    producer_ids: Sequence[int],
    longer_than: int | None,
    pattern: str | None,
) -> None:
    """List the transactional ids with their states."""
    only = TransactionFilter(states, producer_ids, longer_than, pattern)
    with asking.client() as client:
        found = list_transactions(client, None, only)
    if asking.as_json:
        print_json([each._asdict() for each in found])
        return
    rows = [(e.transactional_id, e.coordinator_id, e.producer_id, e.state) for e in found]
    print_table(("transactional id", "coordinator", "producer", "state"), rows)


@command.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@with_client_options
def describe(asking: ClientOptions, transactional_ids: Sequence[str]) -> None:
    """Show the states of transactional ids, and the partitions of their transactions."""
    found: dict[str, TransactionDescription] = {}
    failures = Failures()
    with asking.client() as client:
        for each in transactional_ids:
            with failures.collect():
                found[each] = describe_id(client, each)
    if asking.as_json:
        print_json([_details(each, state) for each, state in found.items()])
    elif found:
        _print_states(found, epoch_ms())
    failures.raise_collected()


def _print_states(found: Mapping[str, TransactionDescription], now_ms: int) -> None:
    columns = ("transactional id", "coordinator", "producer", "epoch", "state", "timeout ms")
    rows: list[Row] = [
        (
            *(each, state.coordinator_id, state.producer_id, state.producer_epoch, state.state),
            *(state.timeout_ms, *_since(state.start_ms, now_ms)),
            " ".join(map(str, sorted(state.partitions))) or NOTHING,
        )
        for each, state in found.items()
    ]
    print_table((*columns, "began", "duration ms", "partitions"), rows)


@command.command("describe-producers")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:0,1]...")
@with_client_options
def describe_producers(asking: ClientOptions, topics: Sequence[str]) -> None:
    """Show which producer ids have written to partitions, and the first offset of the open
    transaction of each, if it has one."""
    failures = Failures()
    with asking.client() as client:
        named = find_partitions(client, topics, failures)
        found, refused = active_producers(client, {*chain.from_iterable(named.values())})
    failures.add(error for _, error in sorted(refused.items()))
    if asking.as_json:
        print_json(
            [
                {"topic": topic, "partition": number, **each._asdict()}
                for (topic, number), producers in sorted(found.items())
                for each in producers
            ]
        )
    elif found or not failures:
        columns = ("topic", "partition", "producer", "epoch", "coordinator epoch", "sequence")
        rows: list[Row] = [
            (
                *(*partition, each.producer_id, each.producer_epoch),
                *(_known(each.coordinator_epoch), _known(each.last_sequence)),
                *(shown_time(each.last_timestamp_ms), _known(each.start_offset)),
            )
            for partition, producers in sorted(found.items())
            for each in producers
        ]
        print_table((*columns, "written", "open since offset"), rows)
    failures.raise_collected()


def _details(transactional_id: str, state: TransactionDescription) -> dict[str, object]:
    partitions = [{"topic": t, "partition": number} for t, number in sorted(state.partitions)]
    return {
        "transactional_id": transactional_id,
        **state._asdict(),
        "start_ms": _known(state.start_ms),
        "partitions": partitions,
    }


def _since(start_ms: int, now_ms: int) -> Row:
    return (None, None) if start_ms < 0 else (shown_time(start_ms), max(now_ms - start_ms, 0))


def _known(number: int) -> int | None:
    return None if number < 0 else number
