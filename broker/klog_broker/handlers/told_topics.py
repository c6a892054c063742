"""Whether this broker was told of all topics, which in a cluster the controller does, soon after
the broker has come; and who waits for that: what it does not know may still exist."""

from collections.abc import Callable

from klog_broker.handlers.context import (
    AnswerSteps,
    BrokerServices,
    ErrorResponse,
    RequestContext,
)
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.message import Request

PATIENCE_MS = 2_000
"""How long a request waits for the controller; then it is answered by what is known."""


def knows_all_partitions(broker: BrokerServices) -> bool:
    """Whether a partition that the image does not show is deleted; else it may not be told yet."""
    return broker.cluster is None or broker.cluster.orders.knows_all


def may_exist(broker: BrokerServices, topic: str) -> bool:
    """Whether a topic that the image does not show may be there all the same: this broker was not
    told yet, or the controller cannot read it."""
    cluster = broker.cluster
    if cluster is None:
        return False
    return not cluster.orders.knows_all or topic in cluster.store.view.unreadable


def was_told_all(broker: BrokerServices) -> bool:
    """Whether the image shows all that there was at some time since the broker began, and what the
    controllers have told since then."""
    return broker.cluster is None or broker.cluster.orders.was_told_all


def unknown_topic(broker: BrokerServices) -> ErrorCode:
    """The error of a topic that the image does not show. That of one which may exist has clients
    ask again."""
    if knows_all_partitions(broker):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.LEADER_NOT_AVAILABLE


def once_told(
    answer: Callable[[], AnswerSteps],
    request: Request,
    context: RequestContext,
    error_response: ErrorResponse,
) -> AnswerSteps | None:
    """What a handler returns whose `answer` needs all topics, or says of topics that there are
    none; BrokerError of the steps is answered through `error_response`."""
    if knows_all_partitions(context.broker):
        return answer()

    def steps() -> AnswerSteps:
        try:
            return (yield from answer())
        except BrokerError as error:
            return error_response(request, error.code)

    when_told_all(context.broker, lambda: context.reply.send_in_slices(steps()))
    return None


def when_told_all(
    broker: BrokerServices, then: Callable[[], None], patience_ms: int = PATIENCE_MS
) -> None:
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

    timer = broker.loop.call_later(patience_ms, over)
    orders.on_told_all.append(told)
