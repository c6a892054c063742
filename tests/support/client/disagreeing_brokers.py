"""Brokers of one cluster that need not agree on it: some are cut off from the controller."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.records.builder import BatchBuilder
from tests.support.client.stand_in_broker import StandInBroker

TOPIC_ID = UUID(int=7)
_NEWEST = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.METADATA: 10,
    ApiKey.PRODUCE: 8,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.INIT_PRODUCER_ID: 4,
}


@dataclass
class BrokerView:
    """One broker's view of partition 0 of topic t and of the other brokers."""

    leader: int
    leader_epoch: int
    end: int
    """The broker's own log end offset; it claims to lead if it is ``leader``."""
    brokers: dict[int, int] = field(default_factory=dict)
    """Ports of the other brokers."""
    has_topic: bool = True
    asked: list[ApiKey] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    produced: int = 0


class DisagreeingBroker(StandInBroker):
    """A broker that acts as controller and coordinator according to its own opinion."""

    def __init__(self, number: int, opinion: BrokerView) -> None:
        self.number = number
        self.opinion = opinion
        self.is_right = False
        """Whether the broker really is the one that it claims to be."""
        super().__init__()
        self.port = self._port

    def _answer(self, request: Request) -> Response:
        opinion = self.opinion
        opinion.asked.append(ApiKey(request.api_key))
        leads = opinion.leader == self.number
        if isinstance(request, MetadataRequest):
            return self._told(request)
        if isinstance(request, ProduceRequest):
            opinion.produced += leads
            raise OSError(
                "as a leader that was replaced ends a connection without acknowledgements"
            )
        if isinstance(request, ListOffsetsRequest):
            code = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return self._offsets(request, code)
        if isinstance(request, FetchRequest):
            return self._fetched(request)
        if isinstance(request, FindCoordinatorRequest):
            port = opinion.brokers[opinion.leader]
            return FindCoordinatorResponse(node_id=opinion.leader, host="127.0.0.1", port=port)
        if isinstance(request, OffsetFetchRequest):
            return self._committed(knows=self.is_right)
        if isinstance(request, InitProducerIdRequest):
            code = ErrorCode.NONE if self.is_right else ErrorCode.NOT_COORDINATOR
            return InitProducerIdResponse(error_code=code.value, producer_id=7, producer_epoch=1)
        if isinstance(request, ListGroupsRequest):
            return ListGroupsResponse(groups=[ListedGroup(group_id=g) for g in opinion.groups])
        if isinstance(request, CreateTopicsRequest):
            code = ErrorCode.NONE if self.is_right else ErrorCode.NOT_CONTROLLER
            rows = [CreatableTopicResult(name="t", error_code=code.value)]
            return CreateTopicsResponse(topics=rows)
        if request.api_key == ApiKey.API_VERSIONS:
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(
                        api_key=key,
                        min_version=registry.find_api(key).min_version,
                        max_version=newest,
                    )
                    for key, newest in _NEWEST.items()
                ]
            )
        return super()._answer(request)

    def _told(self, request: MetadataRequest) -> MetadataResponse:
        opinion = self.opinion
        row = MetadataResponsePartition(
            leader_id=opinion.leader, leader_epoch=opinion.leader_epoch, replica_nodes=[1, 2]
        )
        topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[row])
        if not opinion.has_topic:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value
            topic = MetadataResponseTopic(name="t", error_code=code)
        is_told = bool(request.topics) or (request.topics is None and opinion.has_topic)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
                for number, port in opinion.brokers.items()
            ],
            controller_id=opinion.leader,
            topics=[topic] if is_told else [],
        )

    def _offsets(self, request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
        at = request.topics[0].partitions[0].timestamp
        offset = self.opinion.end if at == -1 else 0
        row = ListOffsetsPartitionResponse(error_code=code.value, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        opinion = self.opinion
        offset = request.topics[0].partitions[0].fetch_offset
        row = PartitionData(high_watermark=opinion.end, log_start_offset=0, records=b"")
        if opinion.leader != self.number:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER.value
        elif offset > opinion.end:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE.value
        elif offset < opinion.end:
            builder = BatchBuilder(offset)
            for _ in range(opinion.end - offset):
                builder.append(None, b"v", 1)
            row.records = builder.build()
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    def _committed(self, *, knows: bool) -> OffsetFetchResponse:
        if not knows:
            return OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR.value)
        row = OffsetFetchResponsePartition(committed_offset=5, metadata="")
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[row])])


@contextmanager
def cut_off_and_whole() -> Iterator[tuple[DisagreeingBroker, DisagreeingBroker]]:
    """Broker 1, which led and has not heard that it does not any more, and broker 2, which does."""
    old = DisagreeingBroker(1, BrokerView(leader=1, leader_epoch=3, end=5))
    new = DisagreeingBroker(2, BrokerView(leader=2, leader_epoch=4, end=10))
    new.is_right = True
    for each in (old, new):
        each.opinion.brokers = {1: old.port, 2: new.port}
    try:
        yield old, new
    finally:
        for each in (old, new):
            each.close()
