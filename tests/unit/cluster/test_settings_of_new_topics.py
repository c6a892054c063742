"""A broker in a cluster describes a new topic once it has read the topic's settings."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.cluster.known_topics import PATIENCE_MS
from klog_broker.topics.entries import ResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.runtime.fake_network import FakeStream

TOPIC = "plain"


class Reading:
    """A broker whose image shows a topic, while the settings are read from ZooKeeper."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.is_reading = True
        self.learning: list[tuple[dict[str, Any], Callable[[], None]]] = []
        self.services = broker.broker.services
        self.topic_id = self.services.metadata.image.topics[TOPIC].topic_id
        reading: Any = SimpleNamespace(
            is_reading_settings_of=lambda each: self.is_reading and each == self.topic_id,
            learn_topics=lambda topics, done: self.learning.append((topics, done)),
        )
        self.services.new_topic_settings = reading

    def describe(self, resource_type: ResourceType, name: str) -> FakeStream:
        wanted = DescribeConfigsResource(resource_type=resource_type, resource_name=name)
        return self.broker.send(DescribeConfigsRequest(resources=[wanted]), 4)


@pytest.fixture
def reading() -> Reading:
    return Reading(new_broker(with_kernel=False))


def code(stream: FakeStream) -> ErrorCode | None:
    """The first resource's; None while there is no answer."""
    if not stream.sent:
        return None
    answer: Any = decode_response(bytes(stream.sent[4:]), ApiKey.DESCRIBE_CONFIGS, 4)
    return ErrorCode(answer.results[0].error_code)


def test_settings_are_described_once_they_are_read(reading: Reading) -> None:
    stream = reading.describe(ResourceType.TOPIC, TOPIC)
    assert code(stream) is None
    ((topics, done),) = reading.learning
    assert topics == {TOPIC: reading.topic_id}
    reading.is_reading = False
    reading.broker.broker.loop.post(done)
    reading.broker.turns()
    assert code(stream) is ErrorCode.NONE
    assert code(reading.describe(ResourceType.TOPIC, TOPIC)) is ErrorCode.NONE
    assert len(reading.learning) == 1


def test_settings_that_zookeeper_does_not_give_are_not_waited_for_for_ever(
    reading: Reading,
) -> None:
    stream = reading.describe(ResourceType.TOPIC, TOPIC)
    reading.broker.pass_time(PATIENCE_MS)
    assert code(stream) is ErrorCode.NONE
    sent = bytes(stream.sent)
    ((_, done),) = reading.learning
    reading.broker.broker.loop.post(done)
    reading.broker.turns()
    assert bytes(stream.sent) == sent, "it is answered once"


def test_other_resources_are_described_at_once(reading: Reading) -> None:
    assert code(reading.describe(ResourceType.BROKER, "0")) is ErrorCode.NONE
    assert code(reading.describe(ResourceType.TOPIC, "nowhere")) is not None
    assert reading.learning == []
