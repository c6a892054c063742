"""Sends AlterPartition requests for all partitions that this broker leads.

Each leader decides which ISR it requests, and what follows from a response (leader_replicas.py).
This module sends the changes of many partitions together, one request at a time. If the outcome of
a request is unknown, or the controller refuses the whole request, the leaders' present ISR changes
are sent after a pause. The controller rejects a change that is not based on the controller's
present state of the partition (its leader epoch and partition epoch). Such a change is requested
again at the next periodic check for lagging followers (every
replica.lag.time.max.ms / 2). The next request is sent only after the response to the last one, or
when that response can no longer come.
"""

from collections.abc import Callable
from typing import Protocol

from klog_broker.cluster.controller_channel import ControllerConnection
from klog_broker.config import BrokerConfig
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.metadata.interface import MetadataStore
from klog_broker.metrics.in_sync_counts import InSyncCounts
from klog_broker.replication.isr_changes import CommittedIsr, IsrChange, IsrOutcome, IsrResult
from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.client.errors import error_code
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)

PARTITIONS_AT_ONCE = 1000
"""The most partitions in one AlterPartition request."""

_TIMEOUT_MS = 30_000
_BACKOFF_MS = 50
_LOOKED_AT_ONCE = 50

_OpenRequest = dict[tuple[TopicId, int], tuple[Leader, IsrChange]]


class IsrRequestServices(Protocol):
    """The broker's objects that IsrRequests uses."""

    @property
    def broker_epoch(self) -> Callable[[], int]: ...

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def in_sync_counts(self) -> InSyncCounts: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def on_image(self) -> list[Callable[[], None]]: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def requests(self) -> RequestRuntime: ...


class IsrRequests:
    """Requests ISR changes from the controller for the partitions that this broker leads. For the
    event loop's thread only."""

    def __init__(self, services: IsrRequestServices, controller: ControllerConnection) -> None:
        self._services = services
        self._controller = controller
        self._wanted: dict[Leader, None] = {}
        self._is_busy = False
        """Whether a request is outstanding, is about to be sent, or will be sent after a pause
        because the last one has not settled all of its changes (IsrOutcome.RETRY)."""
        self._live: frozenset[BrokerId] = frozenset()

    def start(self) -> None:
        """Start to send ISR changes to the controller, and to check periodically for lagging
        followers of all partitions that this broker leads."""
        self._services.replicas.on_in_sync_changed.append(self._changed)
        for leader in self._services.replicas.led.values():
            self._changed(leader)
        self._live = frozenset(self._services.metadata.image.brokers)
        self._services.on_image.append(self._image_changed)
        self._schedule_check()

    # --- lagging followers -----------------------------------------------------------------------
    def _schedule_check(self) -> None:
        pause_ms = max(self._services.config["replica.lag.time.max.ms"] // 2, 1)
        self._services.loop.call_later(
            pause_ms,
            lambda: self._services.requests.slices.run(self._check_and_reschedule(), lambda: True),
        )

    def _check_and_reschedule(self) -> Steps:
        yield from self._check_followers()
        self._schedule_check()

    def _image_changed(self) -> None:
        """When a broker is no longer registered, check immediately the followers of all partitions
        that this broker leads, so that the high watermarks, and DeleteRecords requests, do not wait
        longer than necessary for that broker's replicas."""
        live, before = frozenset(self._services.metadata.image.brokers), self._live
        self._live = live
        if before - live:
            self._services.requests.slices.run(self._check_followers(), lambda: True)

    def _check_followers(self) -> Steps:
        purgatory = self._services.purgatory
        leaders = list(self._services.replicas.led.values())
        for start in range(0, len(leaders), _LOOKED_AT_ONCE):
            yield _LOOKED_AT_ONCE
            for leader in leaders[start : start + _LOOKED_AT_ONCE]:
                if leader.ended is None and not leader.has_no_followers:
                    if leader.replicas.awaits_leader_and_isr:
                        self._retry_rejected_change(leader)
                    leader.look_after_followers()
                    if purgatory.watched_under(leader.topic_partition):
                        # A DeleteRecords request that waits for all live followers may be complete
                        # now, because the broker of a follower has failed.
                        purgatory.check(leader.topic_partition)

    def _retry_rejected_change(self, leader: Leader) -> None:
        """Take the partition's state from the metadata image, and request the ISR change again.

        The controller rejected the change because of another state, and has not sent that state in
        a LeaderAndIsr request since.
        """
        topic = self._services.metadata.image.topic_by_id(leader.log.topic_id)
        number = leader.topic_partition.partition
        if topic is not None and number < len(topic.partitions):
            leader.apply_partition_state(topic.partitions[number])
        self._changed(leader)

    # --- AlterPartition requests -----------------------------------------------------------------
    def _changed(self, leader: Leader) -> None:
        if leader.replicas.pending_change is not None:
            self._wanted[leader] = None
            self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._services.loop.call_soon(self._send)

    def _send(self) -> None:
        requested = self._next()
        if not requested:
            self._is_busy = False
            return
        epoch = self._services.broker_epoch()

        def on_response(response: AlterPartitionResponse | None) -> None:
            self._on_response(requested, response)

        self._controller.send(
            AlterPartitionResponse,
            lambda _: _request(self._services.broker_id, epoch, requested),
            on_response,
            _TIMEOUT_MS,
        )

    def _next(self) -> _OpenRequest:
        """The ISR changes for the next AlterPartition request: those that have waited longest."""
        requested: _OpenRequest = {}
        for leader in list(self._wanted):
            if len(requested) == PARTITIONS_AT_ONCE:
                break
            del self._wanted[leader]
            change = leader.replicas.pending_change
            if leader.ended is None and change is not None:
                requested[leader.log.topic_id, leader.topic_partition.partition] = leader, change
        return requested

    def _on_response(
        self, requested: _OpenRequest, response: AlterPartitionResponse | None
    ) -> None:
        results: dict[tuple[TopicId, int], IsrResult] = {}
        if response is not None and not response.error_code:
            for topic in response.topics:
                for result in topic.partitions:
                    results[TopicId(topic.topic_id), result.partition_index] = _isr_result(result)
        is_again = False
        for key, (leader, change) in requested.items():
            if leader.ended is not None:
                continue
            after = IsrOutcome.RETRY
            if response is None:
                leader.replicas.handle_lost_request(change)
            if key in results:
                after = self._apply_result(leader, change, results[key])
            if after is IsrOutcome.RETRY:
                is_again = True
                self._wanted[leader] = None
        if is_again:
            self._services.loop.call_later(_BACKOFF_MS, self._send)
        else:
            self._send()

    def _apply_result(self, leader: Leader, change: IsrChange, result: IsrResult) -> IsrOutcome:
        counts, before = self._services.in_sync_counts, len(leader.replicas.in_sync.members)
        after = leader.handle_isr_result(change, result)
        if after is IsrOutcome.COMMITTED:
            counts.count_committed(before, len(leader.replicas.in_sync.members))
        elif after is not IsrOutcome.STALE:
            counts.refused += 1
        return after


def _request(
    broker_id: BrokerId, broker_epoch: int, requested: _OpenRequest
) -> AlterPartitionRequest:
    topics: dict[TopicId, TopicData] = {}
    for (topic_id, number), (_, change) in requested.items():
        topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id))
        topic.partitions.append(
            PartitionData(
                partition_index=number,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=each.broker_id, broker_epoch=each.broker_epoch)
                    for each in change.members
                ],
                partition_epoch=change.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def _isr_result(result: PartitionResult) -> IsrResult:
    if result.error_code:
        return error_code(result.error_code)
    return CommittedIsr(
        LeaderEpoch(result.leader_epoch),
        result.partition_epoch,
        tuple(BrokerId(each) for each in result.isr),
    )
