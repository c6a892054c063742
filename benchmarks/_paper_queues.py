"""A turn of a broker with queues in `paper`: what its own client sends, and then receives."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from benchmarks._brokers import explaining
from benchmarks._paper_runs import (
    BATCHES_OF_1,
    CONSUMING,
    VALUE_BYTES,
    Run,
    Subject,
    measure,
)
from benchmarks._queue_broker import QueueBroker

# About 200 KB, as the paper's consumers.
_PREFETCH = 1_000
_UNCOUNTED = 50_000
_COUNTED = "counted"
_UNCOUNTED_QUEUE = "uncounted"


class QueueTurn:
    """The runs of one turn: a new broker, whose client fills two queues and empties them."""

    def __init__(self, make: Callable[[], QueueBroker]) -> None:
        self._make = make
        self._waiting: Counter[str] = Counter()
        """The number of messages in each queue."""

    def __call__(self) -> list[Run]:
        self._waiting.clear()
        with self._make() as broker, explaining(broker.name, broker.output):
            return [
                measure(
                    partial(run, broker, _COUNTED),
                    _UNCOUNTED,
                    warm_up=partial(run, broker, _UNCOUNTED_QUEUE),
                )
                for run in (self._send, self._receive)
            ]

    def _send(self, broker: QueueBroker, queue: str, messages: int) -> Run:
        subject = Subject(broker.name, broker.client, BATCHES_OF_1)
        before = broker.disk_bytes()
        measured = broker.send(queue, messages, VALUE_BYTES)
        self._waiting[queue] += messages
        stored = (broker.disk_bytes() - before) / messages
        return Run(subject, measured, stored - VALUE_BYTES)

    def _receive(self, broker: QueueBroker, queue: str, messages: int) -> Run:
        """Receive all messages of a queue, after filling it up to ``messages``.

        Messages that a broker has sent ahead are lost if their consumer ends before.
        """
        if messages > self._waiting[queue]:
            self._send(broker, queue, messages - self._waiting[queue])
        measured = broker.receive(queue, self._waiting.pop(queue), _PREFETCH)
        return Run(Subject(broker.name, broker.client, CONSUMING), measured)
