"""Carries out the many orders of one request of the controller, a part a turn, and answers it."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from klog_broker.cluster.broker_requests import ORDERS_A_TURN, BetweenBrokersServices
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.log.errors import OutOfDescriptors
from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.message import Response


class OrderRequest(Protocol):
    """A request with orders for replicas."""

    def orders(self) -> Iterator[RoleChange]:
        """Made as they are needed: each may look at the role that its replica has then."""

    def failed(self, partition: TopicPartition, error: KlogError) -> None:
        """An order could not be carried out."""

    def response(self) -> Response:
        """The answer, once all are carried out."""


class OrdersInSlices:
    """`done` is called once the request is answered."""

    def __init__(
        self,
        services: BetweenBrokersServices,
        request: OrderRequest,
        context: RequestContext,
        done: Callable[[], None],
    ) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._done = done
        self._left = request.orders()
        self._is_without_descriptors = False

    def go_on(self) -> None:
        """Carry out the next ones."""
        orders = list(islice(self._left, ORDERS_A_TURN))
        if orders:
            self._services.replicas.apply(orders, self._applied)
            return
        if self._is_without_descriptors:
            # Nobody else would give these orders: the controller asks again.
            self._context.reply.close("no file descriptor is left for the log of a replica")
        else:
            self._context.reply.send(self._request.response())
        self._done()

    def _applied(self, results: RoleChangeErrors) -> None:
        for partition, error in results.items():
            self._request.failed(partition, error)
            if isinstance(error, OutOfDescriptors):
                self._is_without_descriptors = True
        self._services.loop.call_soon(self.go_on)
