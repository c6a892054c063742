"""Writes transaction markers to the partitions that this broker leads.

The markers come from this broker's transaction coordinator, and from those of other brokers
(WriteTxnMarkers). The group coordinator writes the markers of ``__consumer_offsets``, because it
must apply them to its state.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Protocol

from klog_broker.coordinator.group.coordinator import GroupCoordinator
from klog_broker.coordinator.shard import RecordProducer
from klog_broker.coordinator.transaction.coordinator import APPEND_TIMEOUT_MS
from klog_broker.coordinator.transaction.markers import MarkerResults, TransactionMarker
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.log.errors import CoordinatorFenced, InvalidProducerEpoch
from klog_broker.metadata.image import CONSUMER_OFFSETS
from klog_broker.replication.errors import LeadershipEnded, NotEnoughReplicas, TooLittleFreeSpace
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import PartitionServices, ended_code, led_partition
from klog_broker.runtime.event_loop.purgatory import DelayedOperation, Purgatory
from klog_broker.runtime.event_loop.slices import Steps
from klog_broker.runtime.system.clock import Clock
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records.control import ControlType, EndTransactionMarker

MARKER_ELEMENTS = 10
"""The cost of writing one marker, in elements: the unit (about 5 us) in which long work reports its
cost to the event loop (runtime/event_loop/slices.py)."""

_CODES: tuple[tuple[type[KlogError], ErrorCode], ...] = (
    (InvalidProducerEpoch, ErrorCode.INVALID_PRODUCER_EPOCH),
    (CoordinatorFenced, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    (NotEnoughReplicas, ErrorCode.NOT_ENOUGH_REPLICAS),
    (TooLittleFreeSpace, ErrorCode.NOT_ENOUGH_REPLICAS),
    (LeadershipEnded, ErrorCode.NOT_LEADER_OR_FOLLOWER),
)


class MarkerServices(PartitionServices, Protocol):
    """The services that a MarkerWriter needs."""

    @property
    def clock(self) -> Clock: ...

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def requests(self) -> RequestRuntime: ...


class MarkerWriter:
    """Writes markers to the partitions that this broker leads. Loop thread only."""

    def __init__(self, services: MarkerServices) -> None:
        self._services = services

    def send(
        self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        """Write the markers; ``done`` is called once with all results, possibly before the return.

        If there is more than one partition, the markers are written in slices, between which the
        broker serves other requests.
        """
        if len(markers) == 1 and len(markers[0].partitions) == 1:
            (marker,) = markers
            (only,) = marker.partitions
            self.write(marker, only, lambda code: done({(marker.producer_id, only): code}))
            return
        results: dict[tuple[int, TopicPartition], ErrorCode] = {}
        count = sum(len(each.partitions) for each in markers)

        def on_result(producer_id: int, partition: TopicPartition, code: ErrorCode) -> None:
            nonlocal count
            results[producer_id, partition] = code
            count -= 1
            if count == 0:
                done(results)

        def steps() -> Steps:
            for marker in markers:
                for each in marker.partitions:
                    self.write(marker, each, partial(on_result, marker.producer_id, each))
                    yield MARKER_ELEMENTS

        self._services.requests.slices.run(steps(), lambda: True)

    def write(
        self,
        marker: TransactionMarker,
        partition: TopicPartition,
        on_result: Callable[[ErrorCode], None],
    ) -> None:
        """Write the marker to one partition; ``on_result`` gets NONE once the high watermark has
        passed the marker, or an error.

        UNKNOWN_TOPIC_OR_PARTITION means that this broker knows no such partition (any more).
        REQUEST_TIMED_OUT means that the marker was written, but the high watermark has not passed
        it in time. After another error, the marker was not written, or before the high watermark
        had passed the marker, the leadership of the partition ended or the group coordinator's
        shard failed.
        """
        end = _end(marker.is_commit, marker.coordinator_epoch)
        try:
            leader = led_partition(self._services, *partition)
            if partition.topic == CONSUMER_OFFSETS:
                self._services.groups.append_marker(
                    partition.partition,
                    RecordProducer(marker.producer_id, marker.producer_epoch),
                    end,
                    marker.transaction_version,
                    on_result,
                )
                return
            end_offset = leader.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                end,
                transaction_version=marker.transaction_version,
                now_ms=self._services.clock.now_ms(),
            )
        except KlogError as error:
            on_result(_code(error))
            return
        if leader.ended is None and leader.log.high_watermark >= end_offset:
            on_result(ErrorCode.NONE)
            return
        waiting = _WaitUntilSeen(self._services, leader, end_offset, on_result)
        self._services.purgatory.watch(waiting, [partition], APPEND_TIMEOUT_MS)


@lru_cache(maxsize=256)
def _end(is_commit: bool, coordinator_epoch: int) -> EndTransactionMarker:
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    return EndTransactionMarker(kind, coordinator_epoch)


def _code(error: KlogError) -> ErrorCode:
    if isinstance(error, BrokerError):
        # NOT_COORDINATOR: the group coordinator's shard of this partition has failed. Answer
        # NOT_LEADER_OR_FOLLOWER, because the sender of a marker looks for the partition's leader,
        # not for a coordinator.
        not_coordinator = error.code is ErrorCode.NOT_COORDINATOR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if not_coordinator else error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    # All other errors: the partition's log is offline, perhaps because this append failed.
    return ErrorCode.KAFKA_STORAGE_ERROR


class _WaitUntilSeen(DelayedOperation):
    __slots__ = ("_end_offset", "_leader", "_on_result", "_services")
    kind = "WriteTxnMarkers"

    def __init__(
        self,
        services: MarkerServices,
        leader: Leader,
        end_offset: Offset,
        on_result: Callable[[ErrorCode], None],
    ) -> None:
        self._services = services
        self._leader = leader
        self._end_offset = end_offset
        self._on_result = on_result

    def try_complete(self, _now_ms: int) -> bool:
        leader = self._leader.present
        if leader.ended is not None:
            self._on_result(ended_code(self._services, leader))
        elif leader.log.high_watermark >= self._end_offset:
            self._on_result(ErrorCode.NONE)
        else:
            return False
        return True

    def on_expire(self, _now_ms: int) -> None:
        self._on_result(ErrorCode.REQUEST_TIMED_OUT)
