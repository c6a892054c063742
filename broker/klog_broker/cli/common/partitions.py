"""Parses partitions on a command line: ``TOPIC`` for all, or ``TOPIC:0,1`` for some of them."""

from collections.abc import Iterable, Sequence

import click

from klog_broker.cli.common.failures import Failures
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
    client.refresh([topic for topic, _ in wanted])
    return sorted({each for name in wanted for each in _existing(client, *name)})


def find_partitions(
    client: BlockingClient, texts: Iterable[str], failures: Failures
) -> dict[str, list[TopicPartition]]:
    """Return the partitions that each text names. A text that names a topic or partition that does
    not exist is not in the result: ``failures`` gets the error."""
    wanted = {text: split_topic(text) for text in texts}
    client.refresh([topic for topic, _ in wanted.values()])
    found: dict[str, list[TopicPartition]] = {}
    for text, name in wanted.items():
        with failures.collect():
            found[text] = _existing(client, *name)
    return found


def check_topics(client: BlockingClient, topics: Sequence[str]) -> None:
    """Request the metadata of ``topics``, so that ``client.view`` has their partitions.

    :raises TopicMissing: if a topic does not exist
    """
    client.refresh(topics)
    for topic in topics:
        _check_topic(client, topic)


def _check_topic(client: BlockingClient, topic: str) -> None:
    info = client.view.topics[topic]
    if info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise TopicMissing(f"topic {topic} does not exist")
    if info.error is not ErrorCode.NONE and not info.partitions:
        raise broker_error(info.error, f"topic {topic}")


def _existing(
    client: BlockingClient, topic: str, numbers: Sequence[int] | None
) -> list[TopicPartition]:
    """Return the topic's partitions with these numbers (None: all) from the client's metadata.

    :raises TopicMissing: if the topic or one of the partitions does not exist
    """
    _check_topic(client, topic)
    there = client.view.topics[topic].partitions
    for number in numbers or ():
        if number not in there:
            text = f"{topic} has no partition {number}: it has {len(there)}, from 0 on"
            raise TopicMissing(text)
    return [TopicPartition(topic, number) for number in (there if numbers is None else numbers)]
