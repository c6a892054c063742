"""Messages between followers, leaders and coordinators of a cluster: both sides' codecs.

These tests compare decoded messages; tests/golden and tests/peers compare bytes.
"""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from pyspark_klog.protocol.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from pyspark_klog.protocol.apis.fetch import (
    PartitionData as FetchedPartition,
)
from pyspark_klog.protocol.apis.list_offsets import ListOffsetsRequest
from pyspark_klog.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataRequest
from pyspark_klog.protocol.apis.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from pyspark_klog.protocol.message import Request


def sent(request: Request, version: int) -> Request:
    """The request as the other side reads it."""
    header = RequestHeader(request.api_key, version, 7, "broker-1")
    found, message = decode_request(encode_request(header, request)[4:])
    assert found == header
    return message


def test_a_follower_fetches_with_its_broker_epoch() -> None:
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=77),
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic_id=UUID(int=5),
                partitions=[
                    FetchPartition(
                        partition=3, current_leader_epoch=4, fetch_offset=10, last_fetched_epoch=3
                    )
                ],
            )
        ],
    )
    found = sent(request, 15)
    assert isinstance(found, FetchRequest)
    assert (found.replica_state.replica_id, found.replica_state.replica_epoch) == (2, 77)
    assert found == request


def test_a_leader_answers_where_the_logs_diverge() -> None:
    data = FetchedPartition(
        partition_index=3, diverging_epoch=EpochEndOffset(epoch=2, end_offset=9), records=b""
    )
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic_id=UUID(int=5), partitions=[data])]
    )
    frame = encode_response(7, response, 15)
    assert decode_response(memoryview(frame)[4:], FetchRequest.api_key, 15) == response


def test_requests_name_the_replica_or_the_broker_that_asks() -> None:
    for request, version in (
        (ListOffsetsRequest(replica_id=2), 8),
        (OffsetForLeaderEpochRequest(replica_id=2), 4),
    ):
        assert sent(request, version) == request


def test_coordinators_write_markers_and_verify() -> None:
    marker = WritableTxnMarker(producer_id=9, producer_epoch=1, coordinator_epoch=3)
    markers = WriteTxnMarkersRequest(markers=[marker])
    assert sent(markers, 1) == markers
    verified = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id="t",
                producer_id=9,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name="a", partitions=[1])],
            )
        ]
    )
    assert sent(verified, 4) == verified


def test_a_leader_names_the_epochs_of_those_in_sync() -> None:
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=70,
        topics=[
            TopicData(
                topic_id=UUID(int=5),
                partitions=[
                    PartitionData(
                        new_isr_with_epochs=[
                            BrokerState(broker_id=1, broker_epoch=70),
                            # A Kafka broker sends -1 in ZooKeeper mode.
                            BrokerState(broker_id=2, broker_epoch=-1),
                        ]
                    )
                ],
            )
        ],
    )
    assert sent(request, 3) == request


def test_a_request_without_partitions_or_racks_is_whole() -> None:
    request = UpdateMetadataRequest(controller_id=1, broker_epoch=4)
    assert sent(request, 8) == request
