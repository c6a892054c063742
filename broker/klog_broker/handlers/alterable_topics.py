"""Finds the topic whose settings a client alters, or the error; for both APIs that alter them."""

from collections import Counter
from collections.abc import Sequence

from klog_broker.handlers.context import BrokerServices
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import Topic, check_topic_name
from klog_broker.topics.entries import ResourceType
from pyspark_klog.errors import BrokerError, ErrorCode

MAX_CHANGES_PER_TOPIC = 1000
"""How many changes one request may make to one topic: a topic has some 40 settings."""


def alterable_topic(
    broker: BrokerServices, resource_type: int, name: str, settings: Sequence[str]
) -> Topic:
    """The topic that a resource names, once :func:`check_alterable` lets it pass. BrokerError."""
    check_alterable(resource_type, name, settings)
    topic = broker.metadata.image.topic(name)
    if topic is None:
        text = f"there is no topic {name}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return topic


def check_alterable(resource_type: int, name: str, settings: Sequence[str]) -> None:
    """BrokerError unless the resource can be a topic. ``settings`` are the names of what is
    altered: not too many, and none of them twice.

    A broker's own settings cannot be changed while it runs.
    """
    if resource_type == ResourceType.BROKER:
        text = (
            "a broker's settings cannot be changed while it runs: change its properties file and"
            " start it again"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    if resource_type != ResourceType.TOPIC:
        text = f"resource type {resource_type} is not served: 2 (topic) is"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    if len(settings) > MAX_CHANGES_PER_TOPIC:
        text = (
            f"{len(settings)} settings are changed; one topic takes at most"
            f" {MAX_CHANGES_PER_TOPIC} changes in a request"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    twice = [each for each, times in Counter(settings).items() if times > 1]
    if twice:
        text = f"these settings are named twice: {', '.join(twice)}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    if not name:
        text = "the topic's name is empty: there are no settings of all topics"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
