"""Carries out the role changes of one controller request over several event-loop turns, and then
answers the request. A role change makes a replica lead, follow, stop or be deleted."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from klog_broker.cluster.broker_requests import ROLE_CHANGES_PER_TURN, BetweenBrokersServices
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.log.errors import OutOfDescriptors
from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.message import Response


class RoleChangeRequest(Protocol):
    """A LeaderAndIsr or StopReplica request, which changes the roles of replicas (lead, follow)."""

    def role_changes(self) -> Iterator[RoleChange]:
        """Yield one instruction (lead, follow, stop or delete) for each replica that the request
        names, except for replicas that get an error at once. Each is computed shortly before it is
        carried out, because it may depend on the role that the replica has then."""

    def add_error(self, partition: TopicPartition, error: KlogError) -> None:
        """Record that the role change of a partition failed."""

    def response(self) -> Response:
        """The response to the request, once all role changes are carried out."""


class SlicedRoleChanges:
    """Carries out one request, at most ROLE_CHANGES_PER_TURN role changes in an event-loop turn;
    calls `done` once the request is answered, or its connection is closed instead."""

    def __init__(
        self,
        services: BetweenBrokersServices,
        request: RoleChangeRequest,
        context: RequestContext,
        done: Callable[[], None],
    ) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._done = done
        self._left = request.role_changes()
        self._is_without_descriptors = False

    def apply_next(self) -> None:
        """Carry out the next ROLE_CHANGES_PER_TURN role changes. After the last one, answer the
        request, or close its connection if no file descriptor was left for a log."""
        role_changes = list(islice(self._left, ROLE_CHANGES_PER_TURN))
        if role_changes:
            self._services.replicas.apply(role_changes, self._applied)
            return
        if self._is_without_descriptors:
            # Close the connection without a response, so that the controller sends the request
            # again.
            self._context.response_sink.close("no file descriptor is left for the log of a replica")
        else:
            self._context.response_sink.send(self._request.response())
        self._done()

    def _applied(self, results: RoleChangeErrors) -> None:
        for partition, error in results.items():
            self._request.add_error(partition, error)
            if isinstance(error, OutOfDescriptors):
                self._is_without_descriptors = True
        self._services.loop.call_soon(self.apply_next)
