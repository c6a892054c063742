"""Parses partitions on a command line: ``TOPIC`` for all, or ``TOPIC:0,1`` for some of them."""

from collections.abc import Iterable, Sequence

import click

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import TopicMissing, broker_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition


def split_topic(text: str) -> tuple[str, list[int] | None]:
    """Return the topic and the partitions' numbers, or None for all partitions.

    :raises UsageError: if the numbers are not valid
    """
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    try:
        found = [int(number) for number in numbers.split(",")]
    except ValueError:
        found = []
    if not topic or not found or min(found) < 0:
        raise click.UsageError(f"{text}: expected TOPIC, or TOPIC:0,1 for some of its partitions")
    return topic, found


def named_partitions(client: BlockingClient, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that the texts name, sorted and each once.

    :raises TopicMissing: if a topic or partition does not exist
    """
    wanted = [split_topic(text) for text in texts]
    check_topics(client, [topic for topic, _ in wanted])
    found: set[TopicPartition] = set()
    for topic, numbers in wanted:
        there = client.view.topics[topic].partitions
        for number in there if numbers is None else numbers:
            if number not in there:
                text = f"{topic} has no partition {number}: it has {len(there)}, from 0 on"
                raise TopicMissing(text)
            found.add(TopicPartition(topic, number))
    return sorted(found)


def check_topics(client: BlockingClient, topics: Sequence[str]) -> None:
    """Request the metadata of ``topics``, so that ``client.view`` has their partitions.

    :raises TopicMissing: if a topic does not exist
    """
    view = client.refresh(topics)
    for topic in topics:
        info = view.topics[topic]
        if info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TopicMissing(f"topic {topic} does not exist")
        if info.error is not ErrorCode.NONE and not info.partitions:
            raise broker_error(info.error, f"topic {topic}")
