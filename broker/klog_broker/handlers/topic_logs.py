"""How the logs follow a change of topics: partition after partition, the disk's part in helpers.

``make_logs`` and ``set_logs_aside`` are generators of steps for ``run_steps``. A step begins
something and takes what is to be called when it is over.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

from klog_broker.config import topic_config
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.lone_leader import lead, lead_found
from klog_broker.handlers.topic_errors import as_broker_error
from klog_broker.log.errors import InconsistentTopicId, LogStorageError, OutOfDescriptors
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.errors import UnknownTopic
from klog_broker.metadata.image import Topic
from pyspark_klog.errors import BrokerError
from pyspark_klog.ids import TopicPartition

_log = logging.getLogger("klog.topics")

Step = Callable[[Callable[[], None]], None]


def run_steps(steps: Iterator[Step]) -> None:
    """Run the steps one after the other; the generator's own end is the last thing that happens.

    A step that is over before it returns does not make the stack deeper.
    """
    is_running = False
    is_over = True

    def go_on() -> None:
        nonlocal is_running, is_over
        is_over = True
        if is_running:
            return
        is_running = True
        while is_over:
            step = next(steps, None)
            if step is None:
                break
            is_over = False
            step(go_on)
        is_running = False

    go_on()


def make_logs(
    broker: BrokerServices, created: Topic, first_new: int = 0
) -> Generator[Step, None, Topic | BrokerError]:
    """Make the logs that the topic lacks and lead them; returns the topic, or the first error.

    The partitions before ``first_new`` are older: their logs may lie where they cannot be seen now.
    """
    errors: list[BaseException] = []

    def make(partition: TopicPartition, topic: Topic, go_on: Callable[[], None]) -> None:
        def done(log: PartitionLog | None, error: BaseException | None) -> None:
            if error is not None:
                errors.append(error)
            current = broker.metadata.image.topic_by_id(created.topic_id)
            if log is not None and current is not None and current.configs != topic.configs:
                # The settings have changed while it was made.
                log.update_config(topic_log_config(broker, current))
            try:
                if log is not None:
                    lead(log, topic.partitions[partition.partition].leader_epoch)
            except LogStorageError as failure:
                errors.append(failure)
            go_on()

        config = topic_log_config(broker, topic)
        broker.logs.changes.create_beside(partition, topic.topic_id, config, done)

    leaves_older = _why_incomplete(broker, created) is not None
    for number, topic_partition in enumerate(created.topic_partitions()):
        # The topic may have been deleted, or given other settings, since the last step.
        topic = broker.metadata.image.topic_by_id(created.topic_id)
        if topic is None:
            return as_broker_error(UnknownTopic(f"topic {created.name} has been deleted"))
        if number < first_new and leaves_older:
            continue
        if broker.broker_id in topic.partitions[number].replicas:
            yield partial(make, topic_partition, topic)
        if errors:
            return as_broker_error(errors[0])
    return created


def set_logs_aside(
    broker: BrokerServices, topic: Topic
) -> Generator[Step, None, BrokerError | None]:
    """Rename the directories of the topic's logs; who waits for their data is told."""
    errors: list[BaseException] = []

    def set_aside(partition: TopicPartition, go_on: Callable[[], None]) -> None:
        def done(error: BaseException | None) -> None:
            if error is not None:
                errors.append(error)
            go_on()

        broker.logs.changes.delete_beside(partition, topic.topic_id, done)
        broker.purgatory.check(partition)

    failure = _why_incomplete(broker, topic)
    if failure is not None:
        return failure
    for topic_partition in topic.topic_partitions():
        yield partial(set_aside, topic_partition)
        if errors:
            return as_broker_error(errors[0])
    yield broker.logs.forget_deleted
    _tell_of_deletion(broker, topic)
    return None


def make_logs_now(broker: BrokerServices, topic: Topic) -> dict[int, BrokerError]:
    """As :func:`make_logs`, here and now: at the start. Blocks. Returns why partitions are not
    served, by their numbers. OutOfDescriptors goes through."""
    failures: dict[int, BrokerError] = {}
    for number, topic_partition in enumerate(topic.topic_partitions()):
        state = topic.partitions[number]
        if broker.broker_id not in state.replicas:
            continue
        try:
            if broker.logs.get(topic_partition) is None:
                broker.logs.check_complete()
            config = topic_log_config(broker, topic)
            log = broker.logs.create(topic_partition, topic.topic_id, config)
            lead_found(log, state.leader_epoch)
        except OutOfDescriptors:
            raise
        except (LogStorageError, InconsistentTopicId) as error:
            failures[number] = as_broker_error(error)
    return failures


def set_logs_aside_now(broker: BrokerServices, topic: Topic) -> BrokerError | None:
    """As :func:`set_logs_aside`, here and now: at the start. Blocks."""
    failure = _why_incomplete(broker, topic)
    if failure is not None:
        return failure
    for topic_partition in topic.topic_partitions():
        log = broker.logs.get(topic_partition)
        if log is None or log.topic_id != topic.topic_id:
            continue
        try:
            broker.logs.delete(topic_partition)
        except OutOfDescriptors:
            raise
        except LogStorageError as error:
            return as_broker_error(error)
        broker.purgatory.check(topic_partition)
    broker.logs.forget_deleted_now()
    _tell_of_deletion(broker, topic)
    return None


class Strangers:
    """Folders that lie under the names of topics which are to be made: what is in them must not
    become the new topics'. Blocks: for helper threads."""

    def __init__(self, broker: BrokerServices, names: Iterable[str]) -> None:
        self._broker = broker
        self._folders = broker.logs.folders_of(names)

    def check(self, name: str, first_new: int = 0) -> None:
        """InconsistentTopicId if there is one for a partition from `first_new` on."""
        image = self._broker.metadata.image
        known = image.topic(name)
        if (len(known.partitions) if known is not None else 0) != first_new or any(
            topic.name == name for topic in image.deleting.values()
        ):
            return  # somebody was faster, or the name is still taken: the store refuses it
        for number, path in self._folders.get(name, ()):
            # Of a topic that was being deleted it may be gone by now.
            if number >= first_new and self._broker.logs.lies_there(path):
                text = (
                    f"{path} lies in the data directory and is not of this topic; move it away, or"
                    " start the broker once with --adopt to take it in"
                )
                if self._broker.folder_warnings.allows(self._broker.clock.monotonic_ms()):
                    _log.warning("topic=%s cannot be made: %s", name, text)
                raise InconsistentTopicId(text)


def topic_log_config(broker: BrokerServices, topic: Topic) -> LogConfig:
    """What a topic's logs are to do."""
    return LogConfig.from_topic_config(topic_config(broker.config, topic.configs))


def _why_incomplete(broker: BrokerServices, topic: Topic) -> BrokerError | None:
    """If logs of the topic may lie in a directory that is offline: they would come back with it."""
    if all(broker.logs.get(each) is not None for each in topic.topic_partitions()):
        return None
    try:
        broker.logs.check_complete()
    except LogStorageError as error:
        return as_broker_error(error)
    return None


def _tell_of_deletion(broker: BrokerServices, topic: Topic) -> None:
    for tell in broker.on_topic_deleted:
        tell(topic.name)
