"""A broker, a topic for each test, and what a producer reports."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.kafka import KafkaError, Message, Producer

PARTITIONS = 3
_numbers = count()


class Reports(list[tuple[KafkaError | None, Message]]):
    """The delivery reports, in order."""

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Be the callback of `produce`."""
        self.append((error, message))

    @property
    def errors(self) -> list[KafkaError | None]:
        """The errors, in order."""
        return [error for error, _ in self]


@contextmanager
def purged_at_the_end(given: dict[str, Any]) -> Iterator[Producer]:
    """Make a producer that does not wait at its end for records that nobody acknowledges."""
    producer = Producer(given)
    try:
        yield producer
    finally:
        producer.purge()
        producer.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker(auto_create_topics_enable=False) as started:
        yield started


@pytest.fixture
def servers(broker: testing.Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"topic-{next(_numbers)}"
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)])
    return name


@pytest.fixture
def reports() -> Reports:
    return Reports()
