"""The topics that a request names, by name or by id, if the client may use them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from klog_broker.cluster.known_topics import KnownTopics
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.image import Topic
from klog_broker.metadata.interface import MetadataStore
from klog_broker.resources.authorizer import ALLOWS_ALL, AuthorizerServices, is_allowed
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.storage.text_files import encode_topic_id

_NONE = ErrorCode.NONE
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TopicLookup(AuthorizerServices, Protocol):
    """The part of the broker's services that the look-up of topics uses."""

    @property
    def known_topics(self) -> KnownTopics: ...

    @property
    def metadata(self) -> MetadataStore: ...


class RequestedTopic(NamedTuple):
    """A topic that a request names."""

    name: str
    """Empty if no topic has the id in the request, or if the request has a null name."""
    topic: Topic | None
    """The topic, unless ``error`` says why there is none for this client."""
    error: ErrorCode
    """The error code that says why ``topic`` is None; NONE if there is a topic."""
    no_partition: ErrorCode
    """The error for a partition that the topic does not have."""
    topic_id: UUID | None = None
    """The id in the request; None if the request names the topic by its name."""

    def partition_error(self, partition: int) -> ErrorCode:
        """Return why the client cannot use this partition; NONE if ``topic`` is not None and has
        the partition."""
        if self.topic is None:
            return self.error
        return _NONE if 0 <= partition < len(self.topic.partitions) else self.no_partition

    def existing(self) -> Topic:
        """Return the topic; raise BrokerError with ``error`` if ``topic`` is None."""
        if self.topic is not None:
            return self.topic
        if self.error is _DENIED:
            raise BrokerError(_DENIED)
        if self.topic_id is not None:
            text = f"there is no topic with the id {encode_topic_id(self.topic_id)}"
        else:
            text = f"there is no topic {self.name}"
        raise BrokerError(self.error, text)


def requested_topic(
    services: TopicLookup,
    context: RequestContext,
    operation: AclOperation,
    name: str | None,
    topic_id: UUID | None = None,
    *,
    not_sent_yet: ErrorCode = ErrorCode.LEADER_NOT_AVAILABLE,
) -> RequestedTopic:
    """Look a topic up by its id, or by its name if ``topic_id`` is None, and check that the client
    may do ``operation`` on the topic.

    Kafka answers TOPIC_AUTHORIZATION_FAILED whether or not a topic with the denied name exists.
    ``not_sent_yet`` is the error for a topic or partition that the controller may not have sent to
    this broker yet: clients repeat the request.
    """
    is_complete = services.known_topics.is_complete
    no_partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_complete else not_sent_yet
    image = services.metadata.image
    if topic_id is None:
        found_name = name or ""
        topic, unknown = image.topic(found_name), no_partition
    else:
        topic = image.topic_by_id(topic_id)
        found_name = "" if topic is None else topic.name
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if is_complete else not_sent_yet
    if found_name and not may_use_topic(services, context, operation, found_name):
        return RequestedTopic(found_name, None, _DENIED, _DENIED, topic_id)
    error = unknown if topic is None else _NONE
    return RequestedTopic(found_name, topic, error, no_partition, topic_id)


def may_use_topic(
    services: AuthorizerServices, context: RequestContext, operation: AclOperation, name: str
) -> bool:
    """Whether the client may do the operation on the topic."""
    return services.authorizer is ALLOWS_ALL or is_allowed(
        services, context, operation, AclResourceType.TOPIC, name
    )


def check_topic(
    services: AuthorizerServices, context: RequestContext, operation: AclOperation, name: str
) -> None:
    """Raise BrokerError TOPIC_AUTHORIZATION_FAILED unless the client may do the operation on the
    topic ``name``."""
    if not may_use_topic(services, context, operation, name):
        raise BrokerError(_DENIED)


def may_create_topic(services: AuthorizerServices, context: RequestContext, name: str) -> bool:
    """Whether the client may create topics in the cluster, or the topic with this name."""
    create = AclOperation.CREATE
    return is_allowed(
        services, context, create, AclResourceType.CLUSTER, CLUSTER_NAME
    ) or may_use_topic(services, context, create, name)
