"""Orders carried out on the logs, until replicas have a room of their own: make and lead, or set
aside, partition after partition, the disk's part in helpers.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from klog_broker.config import topic_config
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.lone_leader import lead
from klog_broker.log.errors import InconsistentTopicId, LogStorageError, OutOfDescriptors
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.errors import UnknownTopic
from klog_broker.metadata.image import Topic
from klog_broker.metadata.orders import Order, OrderResults, PartitionOrder
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

_Step = Callable[[Callable[[], None]], None]
_Results = dict[TopicPartition, KlogError]


class LogOrders:
    """Carries out orders, one sequence of them after the other."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._waiting: deque[Iterator[_Step]] = deque()
        self.is_starting = True
        """Everything is done here and now, and OutOfDescriptors goes through."""

    def apply(self, orders: Sequence[Order], done: Callable[[OrderResults], None]) -> None:
        """As `ApplyOrders` says."""
        if self.is_starting:
            self._apply_now(orders, done)
            return
        self._waiting.append(self._steps(orders, done))
        if len(self._waiting) == 1:
            self._go_on()

    def _apply_now(self, orders: Sequence[Order], done: Callable[[OrderResults], None]) -> None:
        results: _Results = {}
        for order in orders:
            try:
                if isinstance(order, PartitionOrder):
                    self._make_now(order)
                else:
                    self._set_aside_now(order.topic_partition, order)
            except OutOfDescriptors:
                raise
            except (LogStorageError, InconsistentTopicId, UnknownTopic) as error:
                results[order.topic_partition] = error
        if any(not isinstance(order, PartitionOrder) for order in orders):
            self._broker.logs.forget_deleted_now()
        done(results)

    def _make_now(self, order: PartitionOrder) -> None:
        if self._broker.logs.get(order.topic_partition) is None and not order.is_new:
            self._broker.logs.check_complete()
        config = self._config(order)
        log = self._broker.logs.create(order.topic_partition, order.topic_id, config)
        lead(log, order.leader_epoch)

    def _set_aside_now(self, topic_partition: TopicPartition, order: Order) -> None:
        log = self._broker.logs.get(topic_partition)
        if log is None:
            self._broker.logs.check_complete()
        elif log.topic_id == order.topic_id:
            self._broker.logs.delete(topic_partition)
            self._broker.purgatory.check(topic_partition)

    def _go_on(self) -> None:
        """Take steps. One that is over before it returns does not make the stack deeper."""
        is_running = True
        is_over = True

        def over() -> None:
            nonlocal is_over
            is_over = True
            if not is_running:
                self._go_on()

        while is_over and self._waiting:
            step = next(self._waiting[0], None)
            if step is None:
                self._waiting.popleft()
                continue
            is_over = False
            step(over)
        is_running = False

    def _steps(
        self, orders: Sequence[Order], done: Callable[[OrderResults], None]
    ) -> Iterator[_Step]:
        results: _Results = {}
        deletes = False
        for order in orders:
            deletes = deletes or not isinstance(order, PartitionOrder)
            try:
                step = self._step(order, results)
            except (LogStorageError, UnknownTopic) as error:
                results[order.topic_partition] = error
            else:
                if step is not None:
                    yield step
        if deletes:
            yield self._broker.logs.forget_deleted
        done(results)

    def _step(self, order: Order, results: _Results) -> _Step | None:
        log = self._broker.logs.get(order.topic_partition)
        if log is None and not (isinstance(order, PartitionOrder) and order.is_new):
            # It may lie in a directory that is offline: it would come back with that.
            self._broker.logs.check_complete()
        if isinstance(order, PartitionOrder):
            return partial(self._make, order, self._config(order), results)
        return None if log is None else partial(self._set_aside, order, results)

    def _make(
        self,
        order: PartitionOrder,
        config: LogConfig,
        results: _Results,
        go_on: Callable[[], None],
    ) -> None:
        def done(log: PartitionLog | None, error: BaseException | None) -> None:
            self._note(order, error, results)
            topic = self._topic(order)
            if log is not None and topic is not None:
                # The settings may have changed while it was made.
                changed = topic_log_config(self._broker, topic)
                if changed != config:
                    log.update_config(changed)
            try:
                if log is not None:
                    lead(log, order.leader_epoch)
            except LogStorageError as failure:
                self._note(order, failure, results)
            go_on()

        self._broker.logs.changes.create_beside(order.topic_partition, order.topic_id, config, done)

    def _set_aside(self, order: Order, results: _Results, go_on: Callable[[], None]) -> None:
        def done(error: BaseException | None) -> None:
            self._note(order, error, results)
            go_on()

        self._broker.logs.changes.delete_beside(order.topic_partition, order.topic_id, done)
        self._broker.purgatory.check(order.topic_partition)

    def _note(self, order: Order, error: BaseException | None, results: _Results) -> None:
        if isinstance(error, KlogError):
            results[order.topic_partition] = error
        elif error is not None:
            results[order.topic_partition] = KlogError(f"a bug: {error!r}")

    def _topic(self, order: Order) -> Topic | None:
        return self._broker.metadata.image.topic_by_id(order.topic_id)

    def _config(self, order: Order) -> LogConfig:
        topic = self._topic(order)
        if topic is None:
            raise UnknownTopic(f"topic {order.topic_partition.topic} has been deleted")
        return topic_log_config(self._broker, topic)


def topic_log_config(broker: BrokerServices, topic: Topic) -> LogConfig:
    """What a topic's logs are to do."""
    return LogConfig.from_topic_config(topic_config(broker.config, topic.configs))
