"""AlterPartitionReassignments (key 45): accepts only a partition's present replicas.

Such a reassignment is complete at once. Another order of the same replicas is refused, too. klog
does not move replicas to other brokers yet, and a standalone broker has no other broker to move
them to.
"""

from collections.abc import Sequence

from klog_broker.api.services import TopicsServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    services: TopicsServices, request: AlterPartitionReassignmentsRequest, _: RequestContext
) -> ResponseSteps:
    """Check each partition independently of the others. Null replicas ask to cancel a reassignment,
    but there is never a reassignment in progress."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
    )
    for topic in request.topics:
        yield 1
        found = ReassignableTopicResponse(name=topic.name)
        response.responses.append(found)
        for each in topic.partitions:
            yield 1
            answer = ReassignablePartitionResponse(
                partition_index=each.partition_index, error_message=None
            )
            found.partitions.append(answer)
            try:
                _check(services, topic.name, each.partition_index, each.replicas)
            except BrokerError as error:
                answer.error_code, answer.error_message = error.code, client_text(error)
    return response


def _check(
    services: TopicsServices, topic: str, index: int, replicas: Sequence[int] | None
) -> None:
    """Raise BrokerError unless ``replicas`` are the partition's present replicas, in the present
    order and all on brokers that the metadata image shows."""
    image = services.metadata.image
    state = image.partition(topic, index)
    if state is None:
        text = f"there is no partition {index} of a topic {topic}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if replicas is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    unknown = next((each for each in replicas if each not in image.brokers), None)
    problem = None
    if not replicas:
        problem = "there are no replicas"
    elif unknown is not None:
        problem = f"there is no broker {unknown}"
    elif len(set(replicas)) != len(replicas):
        problem = "a broker is named twice"
    elif tuple(replicas) != state.replicas:
        problem = f"klog moves no replicas; the present ones are on {list(state.replicas)}"
    if problem is not None:
        text = f"the replicas of {topic}-{index}: {problem}"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


API = BrokerApi(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    handle,
    top_level_error(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    access=(on_cluster(AclOperation.ALTER),),
)
