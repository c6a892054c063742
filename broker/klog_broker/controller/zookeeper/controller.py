"""The controller: carries out one event after the other while this broker is the controller.

An event is a change in ZooKeeper (brokers, topics, deletions), a broker's response to a controller
request, or a request from a broker. Each write is fenced (`znode_writer.py`). Only after a write
the controller puts the written state into its context, sends the state to brokers, and answers. An
event can fail in five ways:

- The connection to ZooKeeper breaks. The outcome of the last write is unknown, and the watches are
  lost. At the next connection the controller reads everything again, as a new controller does, and
  carries out all unanswered requests again.
- A broker has registered meanwhile. The controller reads its registration, then repeats the event.
- ZooKeeper has other data than the controller expects. The controller reads everything again after
  RETRY_MS; a request that fails repeatedly is given up (`event_queue.py`).
- The access list of a znode forbids a read or write that the event needs. A request is refused with
  UNKNOWN_SERVER_ERROR; after any other event the controller reads everything again, as above.
- Another controller was elected. This controller resigns, answers all requests with NOT_CONTROLLER,
  and drops the requests that it has queued for brokers.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from klog_broker.controller.decisions.context import RegisteredBroker
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.zookeeper import (
    controller_requests,
    deletions,
    failed_replicas,
    topic_events,
)
from klog_broker.controller.zookeeper.broker_catch_up import send_everything_again
from klog_broker.controller.zookeeper.cluster_log import BrokerLog
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.controller_requests import ElectionErrors, ValidatedTopic
from klog_broker.controller.zookeeper.errors import (
    BrokersChanged,
    ControllerMoved,
    ControllerStateOutdated,
)
from klog_broker.controller.zookeeper.event_queue import ControllerEvent, EventQueue
from klog_broker.controller.zookeeper.fenced_writes import FencedWrites
from klog_broker.controller.zookeeper.request_batch import BrokerRequest
from klog_broker.controller.zookeeper.request_sender import BrokerResponse, RequestSender, Send
from klog_broker.controller.zookeeper.znode_reader import Reader, Subject, ZnodeChange
from klog_broker.controller.zookeeper.znode_writer import EventContext, Writer
from klog_broker.metadata.zookeeper.conversation import Conversation, Steps
from klog_broker.metrics.controller import ControllerCounts
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.zookeeper.sessions import Session
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from pyspark_klog.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from pyspark_klog.protocol.apis.stop_replica import StopReplicaRequest

_log = logging.getLogger("klog.controller")

RETRY_MS = 1_000
DELETION_RETRY_MS = 10_000
FAILED_RETRY_MS = 10_000

_BROKERS = ZnodeChange(Subject.BROKERS)
# Kafka's names of the events.
_CHANGES = {
    Subject.BROKERS: "BrokerChange",
    Subject.TOPICS: "TopicChange",
    Subject.DELETIONS: "TopicDeletion",
}


class Controller:
    """The controller of a cluster over ZooKeeper, for the event loop's thread only.

    Works between the calls of `elected` and `resigned`. `connected` is called for each new
    connection to ZooKeeper, whether or not this broker is the controller. If this broker is elected
    over that connection, `elected` is called after `connected`.
    """

    def __init__(
        self,
        loop: Loop,
        broker_id: BrokerId,
        listener: str,
        *,
        send: Send,
        is_unclean: Callable[[str], bool],
        new_topic_id: Callable[[], TopicId],
        deletes_topics: bool,
    ) -> None:
        """`listener` is the name of the inter-broker listener.

        `is_unclean` returns a topic's unclean.leader.election.enable, by the topic's name.
        `deletes_topics` is delete.topic.enable: if it is false, requested deletions are discarded.
        """
        self._loop = loop
        self._broker_id = broker_id
        self._listener = listener
        self._is_unclean = is_unclean
        self._new_topic_id = new_topic_id
        self._deletes_topics = deletes_topics
        self._sender = RequestSender(loop, send, self._on_response)
        self._session: Session | None = None
        self._reader: Reader
        self._writes: FencedWrites | None = None
        self._work: EventContext | None = None
        self._conversation = Conversation()
        self.counts = ControllerCounts()
        self._changes: dict[ZnodeChange, int] = {}
        """Changes that ZooKeeper has reported, each with the time of the first report (monotonic,
        ms)."""
        self._events = EventQueue(self.counts, loop.now_ms)
        self._broker_log = BrokerLog()
        self._leaving: Mapping[BrokerId, RegisteredBroker] = {}
        self._retry: Timer | None = None
        self._deletion_retry: Timer | None = None
        self._failed_retry: Timer | None = None

    @property
    def offline_partitions(self) -> int:
        """The number of partitions in state OFFLINE; 0 if this broker is not the controller, or has
        yet to read the cluster's state from ZooKeeper."""
        return (
            0
            if self._work is None
            else self._work.controller_state.context.state_count(PartitionState.OFFLINE)
        )

    @property
    def queue_size(self) -> int:
        """The number of events that wait for this controller; 0 if this broker is not the
        controller."""
        return 0 if self._writes is None else len(self._events) + len(self._changes)

    @property
    def deleting_topics(self) -> tuple[str, ...]:
        """The topics whose deletion has begun and waits for brokers; empty if this broker is not
        the controller."""
        work = self._work
        return () if work is None else work.controller_state.context.to_be_deleted

    # --- ZooKeeper sessions and controller epochs ----------------------------------------------

    def connected(self, session: Session) -> None:
        """Use a new connection to ZooKeeper: read everything from it if this broker is the
        controller."""
        self._session = session
        self._reader = Reader(session, self._changed, self._loop.call_soon)
        self._start_reading()

    def expired(self) -> None:
        """Drop the expired ZooKeeper session. The Election object (controller_election.py) gets
        notice of the expiry, too, and calls `resigned`."""
        self._session = None

    def elected(self, writes: FencedWrites) -> None:
        """Start work as the controller; `writes` writes to ZooKeeper in the new controller
        epoch."""
        self._writes = writes
        self._leaving = {}
        self._broker_log.forget_brokers()
        self._start_reading()

    def resigned(self) -> None:
        """Stop work as the controller: fail all pending requests with NOT_CONTROLLER."""
        self._writes = self._work = None
        self._conversation.drop()
        self._sender.clear()
        self._cancel_timers()
        self._events.refuse_all(ErrorCode.NOT_CONTROLLER)

    def elect_again(self) -> None:
        """Try again to elect leaders of offline partitions, because the setting
        unclean.leader.election.enable may have changed for some topics. Does nothing if this broker
        is not the controller."""

        def run(work: EventContext) -> Steps[None]:
            context = work.controller_state.context
            work.controller_state.mark_unsettled(list(context.in_state(PartitionState.OFFLINE)))
            yield from work.writer.settle(work.controller_state)

        if self._writes is not None:
            self._events.put(ControllerEvent("UncleanLeaderElectionEnable", run))
            self._continue_work()

    # --- requests from brokers -----------------------------------------------------------------

    def alter_partition(
        self, request: AlterPartitionRequest, done: Callable[[AlterPartitionResponse], None]
    ) -> None:
        """Carry out AlterPartition: a leader requests new ISRs."""
        self._queue_request(
            "AlterPartition",
            lambda work: controller_requests.alter_partition(work, request),
            done,
            lambda code: AlterPartitionResponse(error_code=code),
        )

    def shut_down(
        self,
        request: ControlledShutdownRequest,
        done: Callable[[ControlledShutdownResponse], None],
    ) -> None:
        """Carry out ControlledShutdown: a broker is about to stop."""
        self._queue_request(
            "ControlledShutdown",
            lambda work: controller_requests.shut_down(work, request),
            done,
            lambda code: ControlledShutdownResponse(error_code=code),
        )

    def allocate_producer_ids(
        self,
        request: AllocateProducerIdsRequest,
        done: Callable[[AllocateProducerIdsResponse], None],
    ) -> None:
        """Carry out AllocateProducerIds: a broker needs a block of producer ids."""
        self._queue_request(
            "AllocateProducerIds",
            lambda work: controller_requests.allocate_producer_ids(work, request),
            done,
            lambda code: AllocateProducerIdsResponse(error_code=code),
        )

    def elect_leaders(
        self,
        partitions: Sequence[TopicPartition] | None,
        done: Callable[[ElectionErrors | ErrorCode], None],
        *,
        unclean: bool,
        leader: BrokerId | None = None,
    ) -> None:
        """Elect the preferred leaders of these partitions, or of all partitions if None.

        With `unclean`, elect instead any online replica for each partition without an online
        leader. With `leader`, elect this broker, if it is in sync, for a test that moves a leader.
        `done` gets an error for each partition, or one error for the whole request.
        """
        run = partial(
            controller_requests.elect_leaders,
            partitions=partitions,
            attempted={},
            unclean=unclean,
            leader=leader,
        )
        self._queue_request("ElectLeaders", run, done, _identity)

    def create_topic(self, topic: ValidatedTopic, done: Callable[[ErrorCode], None]) -> None:
        """Create a topic. `done` gets the error code, NONE once ZooKeeper has the topic."""
        run = partial(controller_requests.create_topic, topic=topic)
        self._queue_request("CreateTopics", run, done, _identity)

    def add_partitions(
        self,
        name: str,
        replicas: Mapping[int, tuple[BrokerId, ...]],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Add partitions to a topic; `replicas` has their assignments by partition number. `done`
        gets the error code, NONE once ZooKeeper has the partitions."""
        run = partial(controller_requests.add_partitions, name=name, replicas=replicas)
        self._queue_request("CreatePartitions", run, done, _identity)

    def delete_topic(self, name: str, topic_id: TopicId, done: Callable[[ErrorCode], None]) -> None:
        """Request the deletion of the topic of this name and id. `done` gets the error code, NONE
        once the request is in ZooKeeper."""
        run = partial(controller_requests.delete_topic, name=name, topic_id=topic_id)
        self._queue_request("DeleteTopics", run, done, _identity)

    def _queue_request(
        self,
        name: str,
        steps: Callable[[EventContext], Steps[Any]],
        done: Callable[[Any], None],
        refusal: Callable[[ErrorCode], Any],
    ) -> None:
        if self._writes is None:
            done(refusal(ErrorCode.NOT_CONTROLLER))
            return

        def run(work: EventContext) -> Steps[None]:
            response = yield from steps(work)
            done(response)

        self._events.put(ControllerEvent(name, run, lambda code: done(refusal(code))))
        self._continue_work()

    # --- changes in ZooKeeper and responses of brokers -----------------------------------------

    def _changed(self, change: ZnodeChange) -> None:
        self._changes.setdefault(change, self._loop.now_ms())
        self._continue_work()

    def _on_response(self, broker_request: BrokerRequest, response: BrokerResponse) -> None:
        work = self._work
        if work is None:
            return
        if isinstance(response, LeaderAndIsrResponse):
            if failed_replicas.may_change_replicas(work, response):
                self._events.put(
                    ControllerEvent(
                        "LeaderAndIsrResponse",
                        lambda work: self._take_failed(work, broker_request, response),
                    )
                )
                self._continue_work()
        elif isinstance(
            broker_request.request, StopReplicaRequest
        ) and work.controller_state.remove_stop_replica(broker_request):
            self._events.put(
                ControllerEvent(
                    "StopReplicaResponse",
                    lambda work: self._on_stop_replica_response(work, broker_request, response),
                )
            )
            self._continue_work()
        if self._sender.behind:
            self._continue_work()

    def _take_failed(
        self, work: EventContext, broker_request: BrokerRequest, response: LeaderAndIsrResponse
    ) -> Steps[None]:
        yield from failed_replicas.process_leader_and_isr_response(work, broker_request, response)
        if work.controller_state.context.has_failed_replicas:
            self._retry_failed_replicas_later()

    def _on_stop_replica_response(
        self, work: EventContext, broker_request: BrokerRequest, response: BrokerResponse
    ) -> Steps[None]:
        if not deletions.process_stop_replica_response(work, broker_request, response):
            self._try_deletions_later()
        yield from deletions.delete_znodes_of(work, deletions.topics_of(broker_request))

    def _take_change(self, work: EventContext, change: ZnodeChange) -> Steps[None]:
        """Carry out a change that ZooKeeper has reported, including the elections that a change of
        the registered brokers makes necessary."""
        since_ms, began_ms = self._changes.pop(change), self._loop.now_ms()
        yield from self._follow_change(work, change)
        if change == _BROKERS:
            yield from work.writer.settle(work.controller_state)
        name = _CHANGES[change.subject]
        self.counts.add_event(name, began_ms - since_ms, self._loop.now_ms() - began_ms)

    def _follow_change(self, work: EventContext, change: ZnodeChange) -> Steps[None]:
        match change:
            case ZnodeChange(Subject.BROKERS):
                version, brokers = yield from work.reader.brokers()
                self._broker_log.log_changes(brokers, work.controller_state.context.shutting_down)
                yield from work.writer.in_turns(
                    work.controller_state.update_brokers(version, dict(brokers))
                )
                yield from deletions.send_deletions(work)
            case ZnodeChange(Subject.TOPICS, ""):
                yield from topic_events.refresh_topics(work, self._new_topic_id)
            case ZnodeChange(Subject.TOPICS, name):
                was_known = work.controller_state.context.topic_id(name) is not None
                yield from topic_events.refresh_topic(work, name, self._new_topic_id)
                if not was_known:
                    # The topic could not be read before. If its deletion was requested, the
                    # deletion can begin only now.
                    yield from deletions.process_topic_deletions(work, self._new_topic_id)
            case ZnodeChange(Subject.DELETIONS):
                yield from deletions.process_topic_deletions(work, self._new_topic_id)

    # --- carrying out one event after the other ------------------------------------------------

    def _start_reading(self) -> None:
        """Discard the cluster's state in memory, and read everything from ZooKeeper, if connected
        and elected."""
        session, writes = self._session, self._writes
        self._events.requeue_current()
        self._conversation.drop()
        self._cancel_timers()
        if session is None or writes is None:
            return
        if self._work is not None:
            self._discard_state(self._work)
        self._changes = {}
        controller_state = ControllerState(
            self._sender,
            controller_id=self._broker_id,
            controller_epoch=writes.epoch.number,
            listener=self._listener,
            is_unclean=self._is_unclean,
            deletes_topics=self._deletes_topics,
            counts=self.counts,
        )
        writer = Writer(session, writes, self._loop.call_soon, self._reader.log_unusable_znode)
        work = EventContext(controller_state, self._reader, writer, session)
        self._conversation.start_steps(self._steps(work))

    def _discard_state(self, work: EventContext) -> None:
        """Discard the cluster's state in memory, except for which brokers are shutting down:
        ZooKeeper does not store this."""
        if self._work is work:
            context = work.controller_state.context
            self._leaving = {each: context.brokers[each] for each in context.shutting_down}
            self._work = None

    def _continue_work(self) -> None:
        if self._work is not None and not self._conversation.is_under_way:
            self._conversation.start_steps(self._steps(self._work))

    def _steps(self, work: EventContext) -> Steps[None]:
        try:
            if self._work is not work:
                began_ms = self._loop.now_ms()
                yield from self._read_all(work)
                self.counts.add_event("ControllerChange", 0, self._loop.now_ms() - began_ms)
            while True:
                began_ms = self._loop.now_ms()
                try:
                    yield from self._do_next_work(work)
                except BrokersChanged:
                    self._events.requeue_current()
                    self._changes.setdefault(_BROKERS, self._loop.now_ms())
                    work.controller_state.send_batch()
                    continue
                finally:
                    took_ms = self._loop.now_ms() - began_ms
                    work.controller_state.election_log.end_event(took_ms)
                work.controller_state.send_batch()
                is_wanted = self._changes or self._events or self._sender.behind
                if work.controller_state.is_settled and not is_wanted:
                    return
        except GeneratorExit:
            # This sequence of ZooKeeper requests was broken off (the connection was lost, for
            # example), so the outcome of its last write is unknown. Never use the state in memory
            # again: the controller reads all of it from ZooKeeper.
            self._discard_state(work)
            raise
        except ControllerMoved:
            return  # The Election object calls `resigned` next.
        except ControllerStateOutdated as error:
            self._events.count_failure(error)
            self._events.requeue_current()
            self._discard_state(work)
            _log.error("reading everything from ZooKeeper again in %d ms: %s", RETRY_MS, error)
            self._retry = self._loop.call_later(RETRY_MS, self._start_reading)

    def _do_next_work(self, work: EventContext) -> Steps[None]:
        """Take in changed broker registrations, elect leaders and change ISRs where these changes
        make it necessary (`Writer.settle`), then do one more piece of work.

        The piece of work is a change that ZooKeeper reported, or a retry of deletions. If there is
        neither, it is a queued event. If there is no event either, a broker whose queued
        requests were dropped, because it did not answer for a long time, gets all metadata and the
        roles (leader or follower) of its replicas again.
        """
        if _BROKERS in self._changes:
            yield from self._take_change(work, _BROKERS)
        yield from work.writer.settle(work.controller_state)
        if self._changes:
            yield from self._take_change(work, next(iter(self._changes)))
        elif self._events:
            yield from self._events.carry_out_next(work)
        elif self._sender.behind:
            yield from send_everything_again(work, self._sender.behind[0])

    def _read_all(self, work: EventContext) -> Steps[None]:
        controller_state = work.controller_state
        version, brokers = yield from work.reader.brokers()
        self._broker_log.log_changes(brokers, self._leaving)
        yield from work.writer.in_turns(controller_state.update_brokers(version, dict(brokers)))
        for broker_id, broker in self._leaving.items():
            known = controller_state.context.brokers.get(broker_id)
            if known is not None and known.epoch == broker.epoch:
                controller_state.context.begin_shutdown(broker_id)
        yield from topic_events.refresh_topics(work, self._new_topic_id)
        # Deletions come before leaders are elected, because a topic to be deleted needs no leader.
        yield from deletions.process_topic_deletions(work, self._new_topic_id)
        self._events.keep_requests()
        self._work = work
        _log.info(
            "broker_id=%d is the controller and has read %d brokers and %d topics from ZooKeeper"
            " controller_epoch=%d",
            self._broker_id,
            len(controller_state.context.brokers),
            len(controller_state.context.topics),
            controller_state.controller_epoch,
        )

    # --- timers that repeat failed work ----------------------------------------------------------

    def _try_deletions_later(self) -> None:
        if self._deletion_retry is None:

            def again() -> None:
                self._deletion_retry = None
                self._changed(ZnodeChange(Subject.DELETIONS))

            self._deletion_retry = self._loop.call_later(DELETION_RETRY_MS, again)

    def _retry_failed_replicas_later(self) -> None:
        if self._failed_retry is None:

            def again() -> None:
                self._failed_retry = None
                self._events.put(
                    ControllerEvent("LeaderAndIsrRetry", failed_replicas.send_roles_again)
                )
                self._continue_work()

            self._failed_retry = self._loop.call_later(FAILED_RETRY_MS, again)

    def _cancel_timers(self) -> None:
        for timer in (self._retry, self._deletion_retry, self._failed_retry):
            if timer is not None:
                timer.cancel()
        self._retry = self._deletion_retry = self._failed_retry = None


def _identity(code: ErrorCode) -> ErrorCode:
    return code
