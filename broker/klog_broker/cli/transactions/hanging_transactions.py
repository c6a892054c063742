"""`klog transactions find-hanging` and `abort`: find and abort transactions that block readers."""

from collections.abc import Iterable, Sequence
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
from klog_broker.cli.common.progress import progress_bar
from klog_broker.cli.common.tables import Row, print_table
from klog_broker.cli.groups.sink_rows import shown_time
from pyspark_klog.client.admin.hanging_transactions import (
    ActiveProducer,
    PartitionTransaction,
    abort_in_partition,
    active_producers,
    find_hanging_transactions,
    find_idle_transactions,
)
from pyspark_klog.client.admin.transaction_descriptions import describe_transaction
from pyspark_klog.client.admin.transaction_listing import fence_producers
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

_AT_ONCE = 1_000
"""For how many partitions the producers are requested together; the progress bar moves after each
such group of partitions."""


@click.command("find-hanging", context_settings=HELP)
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]...]")
@click.option(
    "--broker",
    "broker_id",
    type=click.IntRange(min=0),
    metavar="ID",
    help="Only partitions that it leads.",
)
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Ignore younger transactions: transaction.max.timeout.ms of the brokers.",
)
@with_client_options
def find_hanging(
    asking: ClientOptions,
    topics: Sequence[str],
    broker_id: int | None,
    max_transaction_timeout: int,
) -> None:
    """Find hanging transactions: open in a partition, but unknown to their coordinator. Without
    TOPIC, all partitions are searched.

    Readers of committed records wait for the end of such transactions; `abort` ends them.
    """
    before_ms = epoch_ms() - max_transaction_timeout * 60_000
    suspects: list[PartitionTransaction] = []
    failures = Failures()
    with asking.client() as client:
        partitions = _partitions(client, topics, broker_id, failures)
        with progress_bar("checking partitions", len(partitions)) as advance:
            for at in range(0, len(partitions), _AT_ONCE):
                some = partitions[at : at + _AT_ONCE]
                found, errors = active_producers(client, some)
                failures.add(error for _, error in sorted(errors.items()))
                for partition, producers in sorted(found.items()):
                    suspects += find_idle_transactions(producers, partition, before_ms)
                advance(len(some))
        hang = find_hanging_transactions(client, suspects)
    if asking.as_json:
        print_json([{**each.partition._asdict(), **each.producer._asdict()} for each in hang])
    elif hang or not failures:
        print_table(
            *(("topic", "partition", "start offset", "producer", "epoch", "written"),),
            [_row(each) for each in hang],
        )
    failures.raise_collected()


@click.command("abort", context_settings=HELP)
@click.argument("transactional_id", required=False, metavar="[TRANSACTIONAL_ID]")
@click.option("--topic", metavar="TOPIC", help="The topic where it hangs, with --partition.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="The topic's partition.")
@click.option("--start-offset", type=click.IntRange(min=0), metavar="N", help="Its first offset.")
@click.option("--producer-id", type=click.IntRange(min=0), metavar="N", help="Its producer.")
@click.option(
    "--producer-epoch", type=click.IntRange(0, 2**15 - 1), metavar="N", help="The producer's epoch."
)
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="The epoch of the partition's last marker, or a newer one.",
)
@with_client_options
def abort(
    asking: ClientOptions,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a transaction.

    With TRANSACTIONAL_ID, the coordinator aborts the open transaction of this transactional id, and
    fences its producer, which can write no more. With --topic, --partition and --start-offset,
    abort a hanging transaction in this partition; on brokers older than Kafka 3.0 give
    --producer-id, --producer-epoch and --coordinator-epoch instead of --start-offset. Abort only
    hanging transactions this way: find-hanging lists them.
    """
    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    at = (topic, partition)
    if transactional_id is not None:
        if any(each is not None for each in (*at, start_offset, *by_producer)):
            raise click.UsageError(
                "TRANSACTIONAL_ID: expected no other options with it, such as --topic"
            )
        with asking.client() as client:
            state = describe_transaction(client, transactional_id)
            fence_producers(
                client, transactional_id, transaction_timeout_ms=max(state.timeout_ms, 1)
            )
        say(asking.as_json, "aborted", [transactional_id])
        return
    has_all = None not in by_producer and start_offset is None
    has_offset = start_offset is not None and all(each is None for each in by_producer)
    if topic is None or partition is None or not (has_all or has_offset):
        raise click.UsageError(
            "expected TRANSACTIONAL_ID, or --topic and --partition with --start-offset, or with "
            "--producer-id, --producer-epoch and --coordinator-epoch"
        )
    where = TopicPartition(topic, partition)
    with asking.client() as client:
        if start_offset is not None:
            found = _begun_at(client, where, start_offset)
            by_producer = (found.producer_id, found.producer_epoch, found.coordinator_epoch)
        abort_in_partition(client, where, *(each or 0 for each in by_producer))
    say(asking.as_json, "aborted", [f"{where} of producer {by_producer[0]}"])


def _begun_at(client: BlockingClient, where: TopicPartition, offset: int) -> ActiveProducer:
    """Return the producer of the open transaction that begins at ``offset``.

    :raises KlogError: if there is no such transaction
    """
    found, refused = active_producers(client, [where])
    for error in refused.values():
        raise error
    open_at = {each.start_offset: each for each in found[where] if each.start_offset >= 0}
    if offset not in open_at:
        there = ", ".join(map(str, sorted(open_at))) or "none"
        raise KlogError(
            f"no open transaction of {where} begins at {offset}; open ones begin at: {there}"
        )
    return open_at[offset]


def _partitions(
    client: BlockingClient, topics: Sequence[str], broker_id: int | None, failures: Failures
) -> list[TopicPartition]:
    wanted: Iterable[TopicPartition]
    if topics:
        wanted = {*chain.from_iterable(find_partitions(client, topics, failures).values())}
    else:
        view = client.refresh(None)
        wanted = [
            TopicPartition(n, i) for n, topic in view.topics.items() for i in topic.partitions
        ]
    leads = {each: client.view.leader(each) for each in sorted(wanted)}
    return [
        each
        for each, info in leads.items()
        if broker_id is None or (info is not None and info.leader == broker_id)
    ]


def _row(each: PartitionTransaction) -> Row:
    producer = each.producer
    return (
        *(*each.partition, producer.start_offset),
        *(producer.producer_id, producer.producer_epoch, shown_time(producer.last_timestamp_ms)),
    )
