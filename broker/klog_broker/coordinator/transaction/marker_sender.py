"""Sends transaction markers in a cluster, to this broker's partitions and to other leaders."""

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from functools import partial

from klog_broker.coordinator.broker_request_sender import (
    MOST_PARTITIONS,
    BrokerRequestSender,
    Codes,
    PartitionCodes,
    RequestPart,
    code_of,
    known_code,
)
from klog_broker.coordinator.transaction.markers import (
    MarkerResults,
    MarkerSender,
    TransactionMarker,
)
from klog_broker.metadata.image import MetadataImage
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_VERSION = 1


class MarkersApi:
    """WriteTxnMarkers 1, for brokers with inter.broker.protocol.version 3.9.

    Its markers have no transaction.version, so the partition's leader accepts a marker with the
    producer's current epoch, which transaction.version 2 forbids for an open transaction.
    """

    response_class = WriteTxnMarkersResponse
    versions = (_VERSION, _VERSION)

    def build(self, contents: list[TransactionMarker]) -> WriteTxnMarkersRequest:
        return WriteTxnMarkersRequest(markers=[_written(each) for each in contents])

    def read(self, response: WriteTxnMarkersResponse) -> Mapping[Hashable, PartitionCodes]:
        """Return the error code of each partition, by the producer id of the marker."""
        return {
            marker.producer_id: {
                TopicPartition(topic.name, each.partition_index): known_code(each.error_code)
                for topic in marker.topics
                for each in topic.partitions
            }
            for marker in response.markers
        }


class LeaderMarkerSender:
    """Sends markers to the partitions' current leaders (a MarkerSender).

    ``led`` are the partitions that this broker leads; ``own`` writes the markers of these
    partitions. Each send looks the leaders up again. A partition counts as deleted only if this
    broker's metadata image lacks it and ``may_exist`` returns False for its topic. The image alone
    is not enough: the controller sends LeaderAndIsr before UpdateMetadata, and sends no metadata of
    a topic that it cannot read. An error of another broker is not enough, because that broker may
    not know the partition yet.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        image: Callable[[], MetadataImage],
        led: Container[tuple[str, int]],
        own: MarkerSender,
        others: BrokerRequestSender[TransactionMarker, WriteTxnMarkersResponse],
        *,
        may_exist: Callable[[str], bool],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._led = led
        self._own = own
        self._others = others
        self._may_exist = may_exist

    def send(
        self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        """Send the markers; ``done`` is called once with all results, possibly at once."""
        results: dict[tuple[int, TopicPartition], ErrorCode] = {}
        waiting = 1

        def on_results(found: MarkerResults) -> None:
            nonlocal waiting
            results.update((each, _retriable_code(code)) for each, code in found.items())
            waiting -= 1
            if waiting == 0:
                done(results)

        for marker in markers:
            for broker_id, partitions in self._by_leader(marker, results).items():
                if broker_id == self._broker_id:
                    waiting += 1
                    self._own.send([marker._replace(partitions=partitions)], on_results)
                    continue
                for first in range(0, len(partitions), MOST_PARTITIONS):
                    part = partitions[first : first + MOST_PARTITIONS]
                    waiting += 1
                    self._send_to_broker(broker_id, marker._replace(partitions=part), on_results)
        on_results({})

    def _by_leader(
        self, marker: TransactionMarker, results: dict[tuple[int, TopicPartition], ErrorCode]
    ) -> dict[BrokerId, list[TopicPartition]]:
        """The marker's partitions by leader; partitions without a known leader get an error in
        ``results``."""
        image = self._image()
        found: dict[BrokerId, list[TopicPartition]] = {}
        for each in marker.partitions:
            if each in self._led:
                found.setdefault(self._broker_id, []).append(each)
                continue
            state = image.partition(*each)
            if state is None and not self._may_exist(each.topic):
                results[marker.producer_id, each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif state is None or not self._others.has_broker(state.leader):
                results[marker.producer_id, each] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                found.setdefault(state.leader, []).append(each)
        return found

    def _send_to_broker(
        self,
        broker_id: BrokerId,
        marker: TransactionMarker,
        on_results: Callable[[MarkerResults], None],
    ) -> None:
        part = RequestPart(
            marker.producer_id,
            marker,
            len(marker.partitions),
            partial(_answered, marker, on_results),
        )
        self._others.enqueue_part(broker_id, part)


def _answered(
    marker: TransactionMarker,
    on_results: Callable[[MarkerResults], None],
    codes: Codes,
) -> None:
    on_results({(marker.producer_id, each): code_of(codes, each) for each in marker.partitions})


def _retriable_code(code: ErrorCode) -> ErrorCode:
    """Make UNKNOWN_TOPIC_OR_PARTITION retriable.

    The leader does not know the partition yet, or has already deleted it. At the next send, this
    broker's metadata image decides whether the partition was deleted.
    """
    is_absent = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.LEADER_NOT_AVAILABLE if is_absent else code


def _written(marker: TransactionMarker) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, partition in marker.partitions:
        topics.setdefault(topic, []).append(partition)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics.items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
    )
