"""LeaderAndIsr: the controller makes replicas on this broker leaders or followers.

A role is refused with STALE_CONTROLLER_EPOCH if the replica is already leader or follower in the
same or a newer leader epoch, as in Kafka. The request's type (full or incremental) has no effect:
in a cluster with ZooKeeper, a log that a full request does not name stays on disk.
"""

import logging
from collections.abc import Iterator

from klog_broker.cluster.broker_requests import (
    MAX_ELEMENTS,
    MAX_PARTITIONS,
    BetweenBrokersServices,
    cluster_of,
    is_legal_topic_name,
    queue_controller_request,
    role_change_error,
)
from klog_broker.cluster.role_change_queue import UNKNOWN_EPOCH_TEXT
from klog_broker.cluster.role_change_slices import SlicedRoleChanges
from klog_broker.dispatch.access import BROKERS_ONLY
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.log.errors import InconsistentTopicId
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Follower
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from pyspark_klog.protocol.keys import ApiKey

_log = logging.getLogger("klog.topics")


def handle(
    services: BetweenBrokersServices, request: LeaderAndIsrRequest, context: RequestContext
) -> None:
    """Answer when all replicas that the request names are leaders or followers, or have failed.

    The logs of new topics are created with the topics' settings, so the settings are read from
    ZooKeeper first. If the request will be refused because of its epochs, no settings are read:
    otherwise any client that can connect to the inter-broker listener could make this broker read
    and remember any number of topic names.
    """
    cluster = cluster_of(services, context)
    store, orders = cluster.store, cluster.controller_requests
    if orders.is_ahead(request.broker_epoch):
        context.response_sink.close(UNKNOWN_EPOCH_TEXT)
        return
    topics = {}
    if not orders.is_outdated(request.controller_epoch, request.broker_epoch):
        topics = {
            each.topic_name: TopicId(each.topic_id)
            for each in request.topic_states
            if _is_topic(each)
        }

    def learned() -> None:
        roles = _RoleAssignments(request, services)
        queue_controller_request(
            services,
            request,
            context,
            lambda done: SlicedRoleChanges(services, roles, context, done).apply_next(),
        )

    store.learn_topics(topics, learned)


class _RoleAssignments:
    """Turns the partition states of one request into role assignments (each makes one replica
    leader or follower), and collects their errors."""

    def __init__(self, request: LeaderAndIsrRequest, services: BetweenBrokersServices) -> None:
        self._request = request
        self._services = services
        self._errors: dict[TopicPartition, ErrorCode] = {}
        self._other_topics: list[InconsistentTopicId] = []
        """The errors of partitions whose folders belong to another topic of the same name."""

    def role_changes(self) -> Iterator[RoleAssignment]:
        """Yield a role assignment (it makes a replica leader or follower) for each partition of the
        request. A partition whose state in the request is invalid or stale gets an error
        instead."""
        for topic in self._request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                error = self._fault(topic, state, partition)
                if error is ErrorCode.NONE:
                    yield _role_assignment(topic, state, partition)
                else:
                    self._errors[partition] = error

    def _fault(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        partition: TopicPartition,
    ) -> ErrorCode:
        if not _is_topic(topic):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not 0 <= state.partition_index < MAX_PARTITIONS or state.leader_epoch < 0:
            return ErrorCode.INVALID_REQUEST
        if self._services.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        hosted = self._services.replicas.partition(*partition)
        if (
            hosted is not None
            and hosted.topic_id == topic.topic_id
            and isinstance(hosted.role, Leader | Follower)
            and hosted.epochs.leader_epoch >= state.leader_epoch
        ):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def add_error(self, partition: TopicPartition, error: KlogError) -> None:
        """Store the error of a partition whose replica could not become leader or follower."""
        self._errors[partition] = role_change_error(error)
        if isinstance(error, InconsistentTopicId):
            self._other_topics.append(error)

    def response(self) -> LeaderAndIsrResponse:
        """Return the response with the error of each partition. Log once if folders belong to
        another topic, because the controller does not send such a role again."""
        if self._other_topics:
            _log.error(
                "this broker serves no replica for %d partitions until it is started without their"
                " old folders; the first: %s",
                len(self._other_topics),
                self._other_topics[0],
            )
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=each.partition_index,
                        error_code=self._errors.get(
                            TopicPartition(topic.topic_name, each.partition_index), ErrorCode.NONE
                        ),
                    )
                    for each in topic.partition_states
                ],
            )
            for topic in self._request.topic_states
        ]
        return LeaderAndIsrResponse(topics=topics)


def _is_topic(topic: LeaderAndIsrTopicState) -> bool:
    """Return whether the topic has a legal name and an id (controllers send topic ids since Kafka
    2.8)."""
    return topic.topic_id != NO_TOPIC_ID and is_legal_topic_name(topic.topic_name)


def _role_assignment(
    topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, partition: TopicPartition
) -> RoleAssignment:
    return RoleAssignment(
        partition,
        TopicId(topic.topic_id),
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        state.partition_epoch,
        tuple(map(BrokerId, state.replicas)),
        tuple(map(BrokerId, state.isr)),
        is_new=state.is_new,
    )


API = BrokerApi(
    ApiKey.LEADER_AND_ISR,
    handle,
    top_level_error(ApiKey.LEADER_AND_ISR),
    max_elements=MAX_ELEMENTS,
    access=BROKERS_ONLY,
)
