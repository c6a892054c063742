"""Sends administrative requests to the cluster's controller."""

from collections.abc import Callable
from typing import TypeVar

from pyspark_klog.client.cluster.blocking_client import BlockingClient, Build
from pyspark_klog.client.errors import is_retriable_at_controller
from pyspark_klog.protocol.message import Response

R = TypeVar("R", bound=Response)


def call_controller(
    client: BlockingClient,
    response_class: type[R],
    build: Build,
    check: Callable[[R], None],
    timeout_ms: int,
    what: str,
    *,
    low: int = 0,
) -> None:
    """Send a request, in version ``low`` or newer, to the broker that the metadata names as the
    controller, and pass the response to ``check``. If this broker does not answer, or ``check``
    raises NOT_CONTROLLER, repeat the request for at least default.api.timeout.ms.

    ``timeout_ms`` is the time in which brokers have to do the work, and ``what`` names the work in
    messages.
    """
    deadline_ms = client.deadline(max(timeout_ms, client.settings.number("default.api.timeout.ms")))

    def attempt() -> None:
        view = client.refresh([], deadline_ms)
        if view.controller_id in view.brokers:
            link = client.link_to_broker(view.controller_id, deadline_ms)
        else:
            link = client.link_to_any(deadline_ms)
        check(client.call(link, response_class, build, low=low, timeout_ms=timeout_ms))

    client.run_with_retries(attempt, deadline_ms, what, is_retriable_at_controller)
