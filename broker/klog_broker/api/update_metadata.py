"""UpdateMetadata: the controller sends all or the changed topics of the cluster, for this broker's
metadata image.

The broker reads the live brokers from ZooKeeper itself.
"""

from collections.abc import Callable, Generator

from klog_broker.cluster.broker_requests import (
    MAX_ELEMENTS,
    MAX_PARTITIONS,
    BetweenBrokersServices,
    ClusterServices,
    cluster_of,
    is_legal_topic_name,
    queue_controller_request,
)
from klog_broker.controller.zookeeper.request_batch import FULL, LEADER_DURING_DELETE
from klog_broker.dispatch.access import BROKERS_ONLY
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.image import PartitionRegistration
from klog_broker.metadata.zookeeper.image_updater import TopicUpdate
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId
from pyspark_klog.protocol.apis.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from pyspark_klog.protocol.keys import ApiKey

_PARTITIONS_A_STEP = 50


def handle(
    services: BetweenBrokersServices, request: UpdateMetadataRequest, context: RequestContext
) -> None:
    """Answer when this broker's metadata image has the changes of topics that the request
    contains."""
    cluster = cluster_of(services, context)

    def start_update(done: Callable[[], None]) -> None:
        services.requests.slices.run(_steps(request, context, cluster, done), lambda: True)

    queue_controller_request(services, request, context, start_update)


def _steps(
    request: UpdateMetadataRequest,
    context: RequestContext,
    cluster: ClusterServices,
    done: Callable[[], None],
) -> Steps:
    try:
        yield from _update(request, context, cluster)
    except Exception:
        done()  # a bug: the controller's next requests would wait for this call forever
        raise
    done()


def _update(
    request: UpdateMetadataRequest, context: RequestContext, cluster: ClusterServices
) -> Steps:
    updates = []
    unreadable = set()
    for topic in request.topic_states:
        if not is_legal_topic_name(topic.topic_name):
            # Skip an illegal name: its settings cannot be read from ZooKeeper, and the settings of
            # the other topics would wait for them.
            continue
        yield 1
        if topic.topic_id != NO_TOPIC_ID:
            updates.append((yield from _topic_update(topic)))
        else:
            unreadable.add(topic.topic_name)
    is_all = request.type == FULL
    cluster.store.view.update_topics(updates, is_all=is_all, unreadable=unreadable)
    if is_all:
        cluster.controller_requests.note_full_metadata(
            request.controller_epoch, request.broker_epoch
        )
    context.response_sink.send(UpdateMetadataResponse())


def _topic_update(topic: UpdateMetadataTopicState) -> Generator[int, None, TopicUpdate]:
    """Return the update of one topic. Yield the cost, in units of about 5 us, after every few
    partitions, so that the event loop serves other requests in between."""
    states = {}
    is_deleted = False
    for count, each in enumerate(topic.partition_states, 1):
        if 0 <= each.partition_index < MAX_PARTITIONS:
            states[each.partition_index] = _state(each)
        is_deleted = is_deleted or each.leader == LEADER_DURING_DELETE
        if count % _PARTITIONS_A_STEP == 0:
            yield _PARTITIONS_A_STEP
    return TopicUpdate(topic.topic_name, TopicId(topic.topic_id), states, is_deleted)


def _state(state: UpdateMetadataPartitionState) -> PartitionRegistration:
    return PartitionRegistration(
        tuple(map(BrokerId, state.replicas)),
        tuple(map(BrokerId, state.isr)),
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        state.zk_version,
        tuple(map(BrokerId, state.offline_replicas)),
    )


API = BrokerApi(
    ApiKey.UPDATE_METADATA,
    handle,
    top_level_error(ApiKey.UPDATE_METADATA),
    max_elements=MAX_ELEMENTS,
    access=BROKERS_ONLY,
)
