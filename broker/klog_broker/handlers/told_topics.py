"""Whether this broker was told of all topics, which in a cluster the controller does, soon after
the broker has come; and who waits for that: what it does not know may still exist."""

from collections.abc import Callable

from klog_broker.handlers.context import BrokerServices

PATIENCE_MS = 2_000
"""How long a request waits for the controller; then it is answered by what is known."""


def knows_all_partitions(broker: BrokerServices) -> bool:
    """Whether a partition that the image does not show is deleted; else it may not be told yet."""
    return broker.cluster is None or broker.cluster.orders.knows_all


def was_told_all(broker: BrokerServices) -> bool:
    """Whether the image shows all that there was at some time since the broker began, and what the
    controllers have told since then."""
    return broker.cluster is None or broker.cluster.orders.was_told_all


def when_told_all(broker: BrokerServices, then: Callable[[], None]) -> None:
    """Call back, once and later: as soon as the controller has told of all there is, or when the
    time is over."""
    assert broker.cluster is not None
    orders = broker.cluster.orders

    def over() -> None:
        orders.on_told_all.remove(told)
        then()

    def told() -> None:
        timer.cancel()
        then()

    timer = broker.loop.call_later(PATIENCE_MS, over)
    orders.on_told_all.append(told)
