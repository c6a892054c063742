"""Which clients' Produce may be planned, and for which partitions."""

from collections.abc import Callable, Sequence

from klog_broker.log.segment.planned_append import (
    ACKS_ALL_AT_ONCE,
    ACKS_ALL_LATER,
    ACKS_ALL_NEVER,
    FirstBatch,
    PlannedLog,
    PlanTarget,
)
from klog_broker.metadata.image import INTERNAL_TOPICS
from klog_broker.produce.held_answers import HeldAnswer, HeldAppend
from klog_broker.produce.services import ProduceServices
from klog_broker.produce.verification import begins_now
from klog_broker.resources.led_partitions import topic_name
from klog_broker.security.principal import ANONYMOUS, KafkaPrincipal
from pyspark_klog.errors import BrokerError
from pyspark_klog.ids import UUID


def may_be_planned(principal: KafkaPrincipal) -> bool:
    """Whether this client's Produce may be planned. Plans do not check what a client may do, so the
    client must be allowed to write to every topic.

    So far all clients are ANONYMOUS and may; another principal's requests go to the handler.
    """
    return principal is ANONYMOUS


class ProduceTargets:
    """The partitions that this broker leads, except those of internal topics."""

    def __init__(self, services: ProduceServices) -> None:
        self._services = services

    @property
    def version(self) -> int:
        """Changes whenever an answer of ``find`` may have changed."""
        return self._services.replicas.version

    def find(self, topic: bytes, *, by_id: bool, partition: int) -> PlanTarget | None:
        """The partition, by the topic's name or the bytes of its id; None leaves the request to the
        handler."""
        services = self._services
        try:
            name = topic_name(services, UUID(bytes=topic), partition) if by_id else topic.decode()
        except (BrokerError, UnicodeDecodeError):
            return None
        leader = services.replicas.led.get((name, partition))
        if leader is None or name in INTERNAL_TOPICS or not leader.has_room:
            return None
        acks_all = ACKS_ALL_AT_ONCE
        if not leader.is_alone:
            acks_all = ACKS_ALL_LATER if leader.is_enough_in_sync else ACKS_ALL_NEVER
        return PlanTarget(leader.log, acks_all)

    def hold(
        self,
        answer: bytearray,
        held: Sequence[HeldAppend],
        timeout_ms: int,
        answered: Callable[[int], None],
    ) -> HeldAnswer | None:
        """See PlanTargets."""
        led = self._services.replicas.led
        waiting = [(led[each.log.topic_partition], each) for each in held]
        made = HeldAnswer(answer, waiting, timeout_ms, self._services, answered)
        return None if made.is_due else made

    def appended(self) -> None:
        """See PlanTargets."""
        self._services.purgatory.check_now()

    def begins_now(self, log: PlannedLog, first: FirstBatch) -> bool:
        """Whether the batch is to begin its producer's transaction in this partition."""
        return begins_now(self._services, log, first)
