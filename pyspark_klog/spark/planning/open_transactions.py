"""Committed records behind an open transaction: they are there, and cannot be read yet."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.time_zones import time_text

if TYPE_CHECKING:
    from pyspark_klog.client.blocking import BlockingClient

HOW_TO_WAIT = (
    "nothing is lost: run the query again when the transaction has ended (klog transactions list "
    "shows it). Do not set failOnDataLoss=false, which leaves out records that are committed "
    "behind it"
)


def open_transaction(partition: TopicPartition, first_offset: int, since_ms: int | None) -> str:
    """Say where a transaction is open, and since when: ``since_ms`` is its first record's time."""
    since = "a time that is not known" if since_ms is None else time_text(since_ms * 1_000)
    return (
        f"{partition} has an open transaction since {since}, which begins at offset {first_offset}"
    )


def open_transactions(
    client: "BlockingClient", first_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, str]:
    """`open_transaction` for partitions of a cluster, by the offsets where transactions begin.

    Reads one batch of each partition; the time is left out where that fails.
    """
    from pyspark_klog.spark.planning.samples import ONE_BATCH, take_samples

    samples = take_samples(client, first_offsets, ONE_BATCH)
    times = {p: sample.timestamp_ms for p, sample in samples.items()}
    return {p: open_transaction(p, at, times.get(p)) for p, at in first_offsets.items()}
