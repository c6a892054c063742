"""Protocols of the broker's services that the code for Produce requests uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import PartitionServices
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from klog_broker.security.principal_numbers import PrincipalNumbers
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition


class ProduceAppends(Protocol):
    """Collects the appends of an event-loop turn's Produce requests; implemented in pipeline.py."""

    def add(self, leader: Leader, append: Any) -> None:
        """Add a PartitionAppend (pending_produce.py) to this turn's appends. Appends of the same
        connection to the same partition are made in the order of the calls."""


class VerifyTransactions(Protocol):
    """Asks the transaction coordinator whether partitions are part of a producer's open transaction
    (KIP-890)."""

    def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        adds: bool,
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Call ``done`` once, perhaps before the return, with an error for each partition that is
        not part of the transaction, or could not be verified. If ``adds`` (transaction version 2),
        the coordinator first adds missing partitions to the transaction."""


class PipelineServices(PartitionServices, Protocol):
    """The broker's services that appending batches and delaying their responses use."""

    @property
    def clock(self) -> Clock: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def requests(self) -> RequestRuntime: ...


class ProduceServices(PipelineServices, Protocol):
    """The broker's services that handling Produce requests uses, from parsing to the response."""

    @property
    def principal_numbers(self) -> PrincipalNumbers: ...

    @property
    def produce(self) -> ProduceAppends: ...

    @property
    def verify_transactions(self) -> VerifyTransactions:
        """Asks the transaction coordinator of the transactional id, on this broker or another one,
        whether partitions are part of a producer's open transaction."""

    @property
    def verifies_elsewhere(self) -> Callable[[str], bool]:
        """Returns whether ``verify_transactions`` may ask another broker about a transactional id:
        this broker does not serve as the id's transaction coordinator now. False on a standalone
        broker."""
