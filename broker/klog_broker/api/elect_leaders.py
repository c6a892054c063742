"""ElectLeaders (key 43): elects preferred or unclean leaders of partitions.

In a cluster the controller elects, and the response follows when this broker's metadata image shows
the new leaders, or after the request's timeout. On a standalone broker a partition's only replica
is its leader, so there is nothing to elect: the leader is already the right one, or no broker can
lead.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from klog_broker.api.services import TopicsServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import NO_BROKER, MetadataImage, PartitionRegistration
from klog_broker.metadata.interface import MetadataStore
from klog_broker.resources.visible_partitions import SeenPartitions
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from pyspark_klog.protocol.keys import ApiKey

_PARTITIONS_A_STEP = 50
_FIRST_VERSION_WITH_ERROR = 1


class ElectionType(IntEnum):
    """Which replica to elect; the numbers are those of the field ElectionType in the request."""

    PREFERRED = 0
    UNCLEAN = 1


class Elections(Protocol):
    """The interface to the controller for elections; controller/zookeeper/topic_changes.py
    implements it."""

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        done: Callable[[Mapping[TopicPartition, ErrorCode] | ErrorCode], None],
        *,
        unclean: bool,
        timeout_ms: int,
    ) -> None:
        """Elect leaders of ``partitions`` (None: of all partitions). ``done`` gets the error code
        of each partition, NONE for success, once the metadata image shows the new leaders or after
        the timeout. If the controller refuses the whole request, or does not answer it before the
        timeout, ``done`` gets one error for all partitions."""


class ElectionServices(NamedTuple):
    """The objects that the handler of ElectLeaders uses on a broker in a cluster."""

    metadata: MetadataStore
    elections: Elections


def handle(
    services: TopicsServices, request: ElectLeadersRequest, context: RequestContext
) -> ResponseSteps:
    """Answer for a standalone broker. A null list of topics selects all partitions. The response to
    such a request has every topic, but no partition whose result would be ELECTION_NOT_NEEDED, as
    in Kafka."""
    response = ElectLeadersResponse()
    requested = request.topic_partitions
    if requested is not None and not requested:
        return response
    election = _election(request)
    seen = SeenPartitions(services, context)
    if requested is None:
        for topic in services.metadata.image.topics.values():
            yield 1
            found = ReplicaElectionResult(topic=topic.name)
            response.replica_election_results.append(found)
            for index, state in enumerate(topic.partitions):
                if index % _PARTITIONS_A_STEP == _PARTITIONS_A_STEP - 1:
                    yield _PARTITIONS_A_STEP
                code = _outcome(seen, topic.name, index, state, election)
                if code != ErrorCode.ELECTION_NOT_NEEDED:
                    found.partition_result.append(_result(index, code))
        return response
    for each in requested:
        yield 1
        found = ReplicaElectionResult(topic=each.topic)
        response.replica_election_results.append(found)
        for index in each.partitions:
            yield 1
            known = services.metadata.image.partition(each.topic, index)
            code = _outcome(seen, each.topic, index, known, election)
            found.partition_result.append(_result(index, code))
    return response


def handle_in_cluster(
    services: ElectionServices, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | None:
    """Answer for a broker in a cluster: ask the controller to elect the leaders."""
    requested = request.topic_partitions
    if requested is not None and not requested:
        return ElectLeadersResponse()
    election = _election(request)
    services.elections.elect_leaders(
        None if requested is None else _partitions(requested),
        lambda elected: context.response_sink.send_in_slices(
            _response_steps(services.metadata.image, request, context, elected)
        ),
        unclean=election is ElectionType.UNCLEAN,
        timeout_ms=request.timeout_ms,
    )
    return None


def _election(request: ElectLeadersRequest) -> ElectionType:
    if request.election_type not in tuple(ElectionType):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    return ElectionType(request.election_type)


def _partitions(requested: list[TopicPartitions]) -> list[TopicPartition]:
    named = (TopicPartition(each.topic, index) for each in requested for index in each.partitions)
    return list(dict.fromkeys(named))


def _response_steps(
    image: MetadataImage,
    request: ElectLeadersRequest,
    context: RequestContext,
    elected: Mapping[TopicPartition, ErrorCode] | ErrorCode,
) -> ResponseSteps:
    """Return a generator that makes the response step by step.

    An error for the whole request (such as NOT_CONTROLLER) is in the result of each requested
    partition and not at the top level, as in Kafka, because Kafka's clients look for the error in
    the partitions' results. Only a response without partitions has the error at the top level
    (since version 1).
    """
    if isinstance(elected, ErrorCode):
        requested = request.topic_partitions
        if requested is None:
            topics = image.topics.values()
            partitions = [each for topic in topics for each in topic.topic_partitions()]
        else:
            partitions = _partitions(requested)
        if not partitions and context.api_version >= _FIRST_VERSION_WITH_ERROR:
            # The request is for all partitions, but this broker knows no partition yet; or the
            # request names topics without partitions. So no result can carry the error. Without the
            # top-level error the client would take the election for done.
            return ElectLeadersResponse(error_code=elected)
        elected = dict.fromkeys(partitions, elected)
    found: dict[str, ReplicaElectionResult] = {}
    for partition, code in elected.items():
        yield 1
        if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        result = found.setdefault(partition.topic, ReplicaElectionResult(topic=partition.topic))
        result.partition_result.append(_result(partition.partition, code))
    return ElectLeadersResponse(replica_election_results=list(found.values()))


def _outcome(
    seen: SeenPartitions,
    topic: str,
    index: int,
    state: PartitionRegistration | None,
    election: ElectionType,
) -> ErrorCode:
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leader = seen.partition(topic, index, state).leader_id
    if election is ElectionType.UNCLEAN:
        if leader == NO_BROKER:
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return ErrorCode.ELECTION_NOT_NEEDED
    if leader == state.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def _result(index: int, code: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=code.message)


def error_response(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Return a response with ``code`` for the whole request and for every partition."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_result(index, code) for index in each.partitions],
            )
            for each in request.topic_partitions or ()
        ],
    )


_ACCESS = (on_cluster(AclOperation.ALTER),)
API = BrokerApi(ApiKey.ELECT_LEADERS, handle, error_response, access=_ACCESS)
IN_CLUSTER = BrokerApi(ApiKey.ELECT_LEADERS, handle_in_cluster, error_response, access=_ACCESS)
