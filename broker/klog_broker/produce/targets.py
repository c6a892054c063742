"""Finds the partitions to which an event-loop turn's produce plan (the compiled kernel's list of
appends) may append."""

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
from klog_broker.produce.delayed_responses import DelayedAppend, DelayedResponse
from klog_broker.produce.services import ProduceServices
from klog_broker.produce.verification import begins_now
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.resources.led_partitions import topic_name
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import BrokerError
from pyspark_klog.ids import UUID


class ProduceTargets:
    """The partitions to which a produce plan (the compiled kernel's list of appends) may append:
    those that this broker leads, with enough free disk space for clients' records, except those of
    internal topics."""

    def __init__(self, services: ProduceServices) -> None:
        self._services = services

    @property
    def version(self) -> int:
        """A number that changes whenever a result of ``find`` (the partition to append to, or None)
        may have changed. The number is the sum of the replicas' version and the authorizer's
        version, which only rise."""
        return self._services.replicas.version + self._services.authorizer.version

    @property
    def checks_access(self) -> bool:
        """Whether this broker has access control, so that principals have different rights."""
        return self._services.authorizer is not ALLOWS_ALL

    def find(
        self, topic: bytes, *, by_id: bool, partition: int, principal: int
    ) -> PlanTarget | None:
        """Return the partition of the topic with this name or id, if the principal with the number
        ``principal`` (security/principal_numbers.py) may write to it; None leaves the request to
        the ordinary Produce handler.

        The compiled kernel uses the result for all client addresses of the principal. So the result
        is None if the principal may write from some addresses only: then the ordinary handler
        checks the access.
        """
        services = self._services
        try:
            name = topic_name(services, UUID(bytes=topic), partition) if by_id else topic.decode()
        except (BrokerError, UnicodeDecodeError):
            return None
        if services.authorizer is not ALLOWS_ALL and not services.authorizer.is_allowed(
            services.principal_numbers.principal(principal),
            None,
            AclOperation.WRITE,
            AclResourceType.TOPIC,
            name,
        ):
            return None
        leader = services.replicas.led.get((name, partition))
        if leader is None or name in INTERNAL_TOPICS or not leader.has_free_space:
            return None
        acks_all = ACKS_ALL_AT_ONCE
        if not leader.has_no_followers:
            acks_all = ACKS_ALL_LATER if leader.is_enough_in_sync else ACKS_ALL_NEVER
        return PlanTarget(leader.log, acks_all)

    def hold(
        self,
        answer: bytearray,
        held: Sequence[DelayedAppend],
        timeout_ms: int,
        answered: Callable[[int], None],
    ) -> DelayedResponse | None:
        """Return the delayed response for the batches ``held``, which were appended with acks=all;
        None if no batch has to wait for replication, so that the bytes ``answer`` can be sent
        now."""
        led = self._services.replicas.led
        waiting = [(led[each.log.topic_partition], each) for each in held]
        made = DelayedResponse(answer, waiting, timeout_ms, self._services, answered)
        return None if made.is_due else made

    def appended(self) -> None:
        """Complete the delayed fetches of followers now: responses to acks=all requests wait until
        the followers have the batches that were just appended."""
        self._services.purgatory.check_now()

    def begins_now(self, log: PlannedLog, first: FirstBatch) -> bool:
        """Return whether the transaction coordinator and the log allow the batch to begin its
        producer's transaction in this partition now. False leaves the request to the ordinary
        Produce handler."""
        return begins_now(self._services, log, first)
