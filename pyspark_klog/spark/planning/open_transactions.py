"""Describes open transactions: until one ends, read_committed hides all records after its start."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.bounds import AtCommitted, numbers_of, option_of
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.time_zones import time_text

if TYPE_CHECKING:
    from pyspark_klog.client.cluster.blocking_client import BlockingClient

RUN_AGAIN = (
    "nothing is lost: run the query again when the transaction has ended (klog transactions list "
    "shows it)"
)
HOW_TO_WAIT = (
    f"{RUN_AGAIN}. Do not set failOnDataLoss=false, which leaves out records that are committed "
    "behind it"
)


class EndLookup(Protocol):
    """Returns the partitions' ends: `Discovery` asks a cluster, `SegmentDiscovery` reads files."""

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int], /
    ) -> Offsets:
        """The end of each partition.

        ``known`` has offsets that existed earlier in some of the partitions. If an end is below
        them, it may come from an outdated leader, so `Discovery`, which asks the brokers of a
        cluster, looks up the end again.
        """

    def open_transactions(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], /
    ) -> dict[TopicPartition, str]:
        """A sentence about the open transaction (from `open_transaction`) in each partition whose
        end (in ``ends``) is before its ``start``, at which the read begins, only because of that
        transaction."""


def ends_before_start(lookup: EndLookup, start: Offsets, end: Offsets) -> dict[TopicPartition, str]:
    """A sentence about the open transaction in each partition whose ``end`` is before its ``start``
    because that transaction holds back the last stable offset.

    Partitions are left out if their end is not the last stable offset now: an option gave the end,
    or the transaction has ended since.
    """
    behind = [p for p, offset in end.items() if offset < start[p]]
    latest = lookup.latest(behind, {})
    return lookup.open_transactions(start, {p: end[p] for p in behind if latest[p] == end[p]})


def open_transaction(partition: TopicPartition, first_offset: int, since_ms: int | None) -> str:
    """Say where a transaction is open, and since when: ``since_ms`` is its first record's time."""
    since = "a time that is not known" if since_ms is None else time_text(since_ms * 1_000)
    return (
        f"{partition} has an open transaction since {since}, which begins at offset {first_offset}"
    )


def describe_early_ends(
    options: Options, start: Offsets, end: Offsets, transactions: Mapping[TopicPartition, str]
) -> str:
    """Say which partitions of a batch would end before they begin, why, and what to do.

    ``transactions`` has a sentence about the open transaction for each partition that ends early
    because of one.
    """
    early = [p for p in sorted(start) if end[p] < start[p]]
    texts = ["a batch would end before it begins: "]
    texts[0] += ", ".join(f"{p} from {start[p]} to {end[p]}" for p in early)
    if transactions:
        texts += [", ".join(transactions[p] for p in sorted(transactions)), RUN_AGAIN]
    causes = {_early_end_advice(options, p) for p in early if p not in transactions}
    return "; ".join([*texts, *sorted(causes)])


def _early_end_advice(options: Options, partition: TopicPartition) -> str:
    """Why a batch would end before it begins in ``partition`` if no transaction is the cause, and
    what to do."""
    starting, ending = options.starting, options.ending
    assert starting is not None and ending is not None
    names = option_of(starting, "starting"), option_of(ending, "ending")
    is_start_given = partition in numbers_of(starting)
    is_end_given = partition in numbers_of(ending)
    by_offsets = names == ("startingOffsets", "endingOffsets")
    if by_offsets and is_start_given and not is_end_given:
        return (
            "startingOffsets is beyond the end: give offsets up to the end, and check the topic "
            "and kafka.bootstrap.servers"
        )
    if by_offsets and is_end_given and not isinstance(starting, AtCommitted):
        return (
            "endingOffsets is before the first offset, since retention or DeleteRecords deleted "
            "records: give a later end"
        )
    return f"check {names[0]} and {names[1]}"


def open_transactions(
    client: "BlockingClient", first_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, str]:
    """A sentence for each partition: where its transaction is open, and since when.

    ``first_offsets`` has the offset at which the transaction of each partition begins. One batch is
    read there to get the time; if that fails, the sentence says that the time is not known.
    """
    from pyspark_klog.spark.planning.samples import ONE_BATCH, fetch_samples

    samples = fetch_samples(client, first_offsets, ONE_BATCH)
    times = {p: sample.timestamp_ms for p, sample in samples.items()}
    return {p: open_transaction(p, at, times.get(p)) for p, at in first_offsets.items()}
