"""Checks which topics and settings a client may alter, for AlterConfigs and
IncrementalAlterConfigs."""

from collections import Counter
from collections.abc import Sequence

from klog_broker.api.services import SettingsServices
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import Topic, check_topic_name
from klog_broker.resources.authorizer import is_allowed
from klog_broker.resources.requested_topics import check_topic, requested_topic
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from klog_broker.topics.entries import ResourceType
from pyspark_klog.errors import BrokerError, ErrorCode

MAX_CHANGES_PER_RESOURCE = 1000
"""The most changes in one request to one topic (which has about 40 settings) or one broker (Kafka's
brokers have about 400 settings)."""
_WITHOUT_SETTINGS = {
    8: "loggers have no settings here",
    16: "client metrics have no settings here",
    32: "groups have no settings here, since Kafka's belong to newer group protocols (KIP-848)",
}


def without_settings(resource_type: int) -> str:
    """Return the error text for a resource type other than topic or broker."""
    why = _WITHOUT_SETTINGS.get(resource_type, "2 (topic) and 4 (broker) are")
    return f"resource type {resource_type} is not served: {why}"


def check_may_alter(
    services: SettingsServices, context: RequestContext, resource_type: int, name: str
) -> None:
    """Raise BrokerError unless the client may alter the settings of the topic ``name``, or, for
    every other resource type, of the cluster."""
    if resource_type == ResourceType.TOPIC:
        check_topic(services, context, AclOperation.ALTER_CONFIGS, name)
    elif not is_allowed(
        services, context, AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME
    ):
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def alterable_topic(
    services: SettingsServices,
    context: RequestContext,
    resource_type: int,
    name: str,
    settings: Sequence[str],
) -> Topic:
    """Return the topic that a resource names. BrokerError if the topic does not exist, if the
    client may not alter its settings, or if :func:`check_alterable` refuses the resource type, the
    topic's name or the names of the settings."""
    check_alterable(resource_type, name, settings)
    return requested_topic(services, context, AclOperation.ALTER_CONFIGS, name).existing()


def check_setting_names(settings: Sequence[str]) -> None:
    """Raise BrokerError if there are too many ``settings``, or if one is named twice."""
    if len(settings) > MAX_CHANGES_PER_RESOURCE:
        text = (
            f"{len(settings)} settings are changed; one topic or broker takes at most"
            f" {MAX_CHANGES_PER_RESOURCE} changes in a request"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    twice = [each for each, times in Counter(settings).items() if times > 1]
    if twice:
        text = f"these settings are named twice: {', '.join(twice)}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)


def check_alterable(resource_type: int, name: str, settings: Sequence[str]) -> None:
    """Raise BrokerError unless the resource type is topic, ``name`` is a legal topic name, and
    :func:`check_setting_names` accepts ``settings``."""
    if resource_type != ResourceType.TOPIC:
        raise BrokerError(ErrorCode.INVALID_REQUEST, without_settings(resource_type))
    check_setting_names(settings)
    if not name:
        text = "the topic's name is empty: there are no settings of all topics"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
