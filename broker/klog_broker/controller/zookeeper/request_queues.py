"""The queues of controller requests: one queue for each broker, one request in flight.

A broker gets its requests in the order in which they were queued. The next request is sent after
the response to the one before; after a lost connection, the same request is sent again. Requests
are for one broker epoch. When a broker registers again, its queue is dropped, and the controller
makes new requests from the present state.

A broker may stay registered for a long time without answering (it hangs, or only ZooKeeper reaches
it) while topics come and go. If its queue becomes too large, all requests are dropped except the
first, which may be in flight, and new requests are dropped, too. Once the broker answers the first
request, it is *behind*, and the controller sends it all metadata, and the roles (leader or
follower) of its replicas, again.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from klog_broker.controller.zookeeper.request_batch import BrokerRequest
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import BrokerId


@dataclass(slots=True)
class _Queue:
    broker_epoch: int
    waiting: deque[BrokerRequest] = field(default_factory=deque)
    is_sent: bool = False
    """Whether the first request of the queue is in flight."""
    size: int = 0
    """The sum of `BrokerRequest.size` of all requests in the queue."""
    is_dropped: bool = False
    """Whether requests were dropped; then new requests are dropped, too, until
    `RequestQueues.resume` is called."""


class RequestQueues:
    """The request queues of all registered brokers, by broker id."""

    def __init__(self) -> None:
        self._queues: dict[BrokerId, _Queue] = {}
        self._behind: dict[BrokerId, None] = {}

    def add_broker(self, broker_id: BrokerId, broker_epoch: int) -> None:
        """Add a queue for a broker; drop its queue of another broker epoch, if any."""
        known = self._queues.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            self._queues[broker_id] = _Queue(broker_epoch)
            self._behind.pop(broker_id, None)

    def remove_broker(self, broker_id: BrokerId) -> None:
        """Drop the queue of a broker that is no longer registered."""
        self._queues.pop(broker_id, None)
        self._behind.pop(broker_id, None)

    def clear(self) -> None:
        """Drop all queues, because this broker is no longer the controller."""
        self._queues.clear()
        self._behind.clear()

    @property
    def behind(self) -> tuple[BrokerId, ...]:
        """The brokers that answer again after their requests were dropped. Their new requests are
        dropped, too, until `resume` is called."""
        return tuple(self._behind)

    def resume(self, broker_id: BrokerId) -> None:
        """Stop dropping new requests for a broker in `behind`: queue them from now on. The broker
        leaves `behind`."""
        del self._behind[broker_id]
        self._queues[broker_id].is_dropped = False

    def accepts_requests(self, broker_id: BrokerId) -> bool:
        """Whether `put` queues new requests for a broker and does not drop them at once.

        `put` still drops new requests that make the queue too large.
        """
        queue = self._queues.get(broker_id)
        return queue is not None and not queue.is_dropped

    def put(self, broker_requests: Iterable[BrokerRequest], at_most: int) -> list[BrokerId]:
        """Append requests to their brokers' queues; return the brokers that have none in flight.

        A queue is dropped except for its first request if its size (about how many partitions and
        brokers its requests name) exceeds `at_most`. `at_most` must exceed the size of the requests
        with which a broker gets all metadata, and the roles (leader or follower) of its replicas,
        again.
        Requests for another broker epoch than the queue's are ignored.
        """
        ready: dict[BrokerId, None] = {}
        for broker_request in broker_requests:
            queue = self._queues.get(broker_request.broker_id)
            if (
                queue is None
                or queue.broker_epoch != broker_request.broker_epoch
                or queue.is_dropped
            ):
                continue
            queue.waiting.append(broker_request)
            queue.size += broker_request.size
            if queue.size > at_most and len(queue.waiting) > 1:
                _drop(queue)
            if not queue.is_sent:
                ready[broker_request.broker_id] = None
        return list(ready)

    def next_size(self, broker_id: BrokerId) -> int:
        """The size of the request that `next_request` would return; 0 if no request can be sent."""
        queue = self._queues.get(broker_id)
        if queue is None or queue.is_sent or not queue.waiting:
            return 0
        return queue.waiting[0].size

    def next_request(self, broker_id: BrokerId) -> BrokerRequest | None:
        """Return a broker's next request and mark it as in flight; None if none can be sent."""
        queue = self._queues.get(broker_id)
        if queue is None or queue.is_sent or not queue.waiting:
            return None
        queue.is_sent = True
        return queue.waiting[0]

    def remove_answered(self, broker_request: BrokerRequest) -> None:
        """Remove a request that was answered, so that the next request may be sent."""
        queue = self._sent(broker_request)
        if queue is not None:
            queue.size -= queue.waiting.popleft().size
            queue.is_sent = False
            if queue.is_dropped:
                self._behind[broker_request.broker_id] = None

    def requeue(self, broker_request: BrokerRequest) -> None:
        """Return a request to the queue to send it again, because its outcome is unknown."""
        queue = self._sent(broker_request)
        if queue is not None:
            queue.is_sent = False

    def _sent(self, broker_request: BrokerRequest) -> _Queue | None:
        """The queue that a request was sent from; None if the broker has registered again or is no
        longer registered."""
        queue = self._queues.get(broker_request.broker_id)
        if queue is None or queue.broker_epoch != broker_request.broker_epoch:
            return None
        if not queue.is_sent or queue.waiting[0] is not broker_request:
            raise InvariantViolation(
                f"a request to broker {broker_request.broker_id} ended that was not in flight"
            )
        return queue


def _drop(queue: _Queue) -> None:
    first = queue.waiting[0]
    queue.waiting = deque((first,))
    queue.size = first.size
    queue.is_dropped = True
