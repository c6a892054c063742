"""A Produce request until its response: the results of its appends, and which appends are
replicated or flushed as acks requires.

With acks=-1 the response waits in the purgatory until the high watermark has passed the records.
With acks=1 it waits only if flush.messages=1, until the records are flushed or the high watermark
has passed them. If this broker's leadership ends first, the response is an error. A newer leader
epoch of the same leader does not end the leadership, as in Kafka: the records still exist, and
librdkafka takes NOT_LEADER_OR_FOLLOWER for "not written" and may reuse the sequences for other
records.
"""

from __future__ import annotations

from typing import NamedTuple

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.produce.services import PipelineServices
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import ended_code
from klog_broker.runtime.event_loop.purgatory import DelayedOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)


class PartitionAppend(NamedTuple):
    """The records that one Produce request appends to one partition."""

    pending: PendingProduce
    answer: PartitionProduceResponse
    records: memoryview | bytearray | bytes
    guard: VerificationGuard | None = None
    """For a batch that begins a transaction: the token of the verification that the transaction
    coordinator has made (KIP-890). The log refuses such a batch without its token. Other batches
    have None."""


class _Waiting(NamedTuple):
    """An append whose records are not yet replicated or flushed as acks requires."""

    answer: PartitionProduceResponse
    leader: Leader
    required_offset: int


class PendingProduce(DelayedOperation):
    """A Produce request until its response is sent."""

    __slots__ = (
        "_services",
        "_timeout_ms",
        "_waiting",
        "acks",
        "context",
        "open_appends",
        "response",
    )
    kind = "Produce"

    def __init__(
        self, services: PipelineServices, request: ProduceRequest, context: RequestContext
    ) -> None:
        self._services = services
        # The request is not stored: its records may be megabytes, and are not needed while the
        # response waits for the followers.
        self._timeout_ms = request.timeout_ms
        self.context = context
        self.acks = request.acks
        self.response = ProduceResponse()
        self.open_appends = 0
        self._waiting: list[_Waiting] = []

    def wait_for(
        self, answer: PartitionProduceResponse, leader: Leader, required_offset: int
    ) -> None:
        """Delay the response until all records before ``required_offset`` are replicated (acks=-1),
        or replicated or flushed (acks=1)."""
        if self._safe_offset(leader) < required_offset:
            self._waiting.append(_Waiting(answer, leader, required_offset))

    def _safe_offset(self, leader: Leader) -> int:
        log = leader.log
        if self.acks == -1:
            return log.high_watermark
        # With acks=1 the response waits until the records are flushed (flush.messages=1). Records
        # below the high watermark are safe, too: all in-sync replicas have them.
        return max(log.high_watermark, log.flushed_offset)

    def appended(self) -> None:
        """Count one append of the request as done. After the last one, send the response, or wait
        until all appends are replicated or flushed as ``acks`` requires."""
        self.open_appends -= 1
        if self.open_appends:
            return
        if not self._waiting:
            self._answer()
            return
        keys = [each.leader.topic_partition for each in self._waiting]
        purgatory = self._services.purgatory
        if not purgatory.watch(self, keys, self._timeout_ms):
            self.context.response_sink.when_closed(lambda: purgatory.cancel(self))

    def try_complete(self, _now_ms: int) -> bool:
        still_waiting: list[_Waiting] = []
        for each in self._waiting:
            leader = each.leader.present
            if leader.ended is not None:
                set_error(each.answer, ended_code(self._services, leader))
            elif self._safe_offset(leader) < each.required_offset:
                still_waiting.append(each)
            elif self.acks == -1 and leader.has_too_few_of(each.required_offset):
                set_error(each.answer, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._waiting = still_waiting
        if still_waiting:
            return False
        self._answer()
        return True

    def on_expire(self, _now_ms: int) -> None:
        for each in self._waiting:
            set_error(each.answer, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting = []
        self._answer()

    def _answer(self) -> None:
        response_sink = self.context.response_sink
        if self.acks != 0:
            response_sink.send(self.response)
            return
        for topic in self.response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    # The client expects no response: only a closed connection can report the error.
                    name = f"{topic.name or topic.topic_id}-{partition.index}"
                    response_sink.close(f"Produce with acks=0 to {name}: {partition.error_message}")
                    return
        response_sink.skip()


def set_error(answer: PartitionProduceResponse, code: ErrorCode, text: str | None = None) -> None:
    """Make the partition's response an error. Its base offset, log append time and log start offset
    become -1, as in Kafka's brokers."""
    answer.error_code = code
    answer.error_message = text
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
