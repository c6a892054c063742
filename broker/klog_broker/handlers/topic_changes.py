"""Changes to topics, for the handlers that make them: plan (checks, no effect), then change.

A plan is made in the loop from the current image and raises BrokerError with a sentence. A change
is first made durable in the metadata store, in a helper thread; then the logs follow (topic_logs);
then ``done`` is called in the loop. What a crash leaves in between is finished by `settle`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from klog_broker.config import TopicConfig, topic_config
from klog_broker.config_types import ConfigError
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.lone_leader import advance
from klog_broker.handlers.topic_errors import as_broker_error
from klog_broker.handlers.topic_logs import (
    Step,
    Strangers,
    make_logs,
    make_logs_now,
    run_steps,
    set_logs_aside,
    set_logs_aside_now,
    topic_log_config,
)
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import (
    CLUSTER_METADATA,
    Topic,
    check_no_collision,
    check_topic_name,
)
from klog_broker.metadata.interface import NewTopic
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import BrokerId, TopicId
from pyspark_klog.storage.text_files import encode_topic_id

_log = logging.getLogger("klog.topics")

# What one request may create, as in Kafka: a partition costs files, and memory before that.
MAX_PARTITIONS_PER_REQUEST = 10_000

Assignment = tuple[tuple[BrokerId, ...], ...]


class MorePartitions(NamedTuple):
    """Partitions that may be added behind the last one, whose number is `first_partition` - 1."""

    first_partition: int
    assignment: Assignment


def plan_new_topic(
    broker: BrokerServices,
    name: str,
    *,
    num_partitions: int = -1,
    replication_factor: int = -1,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> NewTopic:
    """Check a topic to be created; -1 takes the broker's default. BrokerError if it cannot be."""
    image = broker.metadata.image
    if name == CLUSTER_METADATA:
        text = f"{CLUSTER_METADATA} is the name of Kafka's own metadata and cannot be a topic's"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    if image.topic(name) is not None:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    try:
        check_topic_name(name)
        check_no_collision(name, image)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if assignment:
        if num_partitions != -1 or replication_factor != -1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                "replicas are assigned by hand: the numbers of partitions and replicas must be -1",
            )
        planned = _manual_assignment(broker, assignment, first_partition=0)
    else:
        planned = _even_assignment(broker, num_partitions, replication_factor)
    checked_topic_config(broker, configs or {})
    return NewTopic(name, planned, dict(configs or {}))


def plan_more_partitions(
    broker: BrokerServices, topic: Topic, count: int, assignment: Sequence[Sequence[int]] | None
) -> MorePartitions:
    """The partitions that make `topic` have `count` of them, or BrokerError."""
    current = len(topic.partitions)
    if count <= current:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {current} partitions already; {count} are asked for, and"
            " partitions cannot be taken away",
        )
    added = count - current
    if added > MAX_PARTITIONS_PER_REQUEST:
        raise too_many_partitions(added)
    if assignment is None:
        factor = len(topic.partitions[0].replicas)
        return MorePartitions(current, _even_assignment(broker, added, factor))
    if len(assignment) != added:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas are assigned to {len(assignment)} partitions, but {added} are to be added",
        )
    by_number = {current + index: replicas for index, replicas in enumerate(assignment)}
    return MorePartitions(current, _manual_assignment(broker, by_number, current))


def checked_topic_config(broker: BrokerServices, configs: Mapping[str, str]) -> TopicConfig:
    """A topic's settings, or BrokerError INVALID_CONFIG with the reason."""
    try:
        return topic_config(broker.config, configs)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def create_topics(
    broker: BrokerServices,
    planned: Sequence[NewTopic],
    done: Callable[[list[Topic | BrokerError]], None],
) -> None:
    """Create the topics one after the other; `done` gets a topic or an error for each of them."""

    def store() -> list[Topic | KlogError]:
        strangers = Strangers(broker, [new.name for new in planned])
        refused: dict[int, KlogError] = {}
        for number, new in enumerate(planned):
            try:
                strangers.check(new.name)
            except KlogError as error:
                refused[number] = error
        wanted = [new for number, new in enumerate(planned) if number not in refused]
        created = iter(broker.metadata.create_topics(wanted))
        return [refused[n] if n in refused else next(created) for n in range(len(planned))]

    def follow(results: list[Topic | KlogError]) -> Iterator[Step]:
        outcomes: list[Topic | BrokerError] = []
        for result in results:
            if isinstance(result, KlogError):
                outcomes.append(as_broker_error(result))
                continue
            warn_of_settings(result.name, topic_config(broker.config, result.configs))
            made = yield from make_logs(broker, result)
            if isinstance(made, Topic):
                _tell("created", made)
            elif made.code is ErrorCode.KAFKA_STORAGE_ERROR:
                yield partial(_take_back, broker, result)
            outcomes.append(made)
        done(outcomes)

    def stored(results: list[Topic | KlogError] | None, error: BaseException | None) -> None:
        if results is None:
            done([as_broker_error(error) for _ in planned])
        else:
            run_steps(follow(results))

    broker.helpers.submit(store, stored)


def _take_back(broker: BrokerServices, topic: Topic, go_on: Callable[[], None]) -> None:
    """Delete a topic whose logs could not all be made; where that cannot be done either, the next
    start makes them."""

    def done(error: BrokerError | None) -> None:
        if error is not None:
            _log.warning("topic=%s is not complete, nor deleted: %s", topic.name, error.text)
        go_on()

    delete_topic(broker, topic.topic_id, done)


def add_partitions(
    broker: BrokerServices,
    name: str,
    more: MorePartitions,
    done: Callable[[Topic | BrokerError], None],
) -> None:
    """Add partitions to a topic; `done` gets the topic as it is then, or an error."""

    def follow(topic: Topic) -> Iterator[Step]:
        outcome = yield from make_logs(broker, topic, more.first_partition)
        if isinstance(outcome, Topic):
            _tell("extended", outcome)
        done(outcome)

    def stored(topic: Topic | None, error: BaseException | None) -> None:
        if topic is None:
            done(as_broker_error(error))
        else:
            run_steps(follow(topic))

    def store() -> Topic:
        Strangers(broker, [name]).check(name, more.first_partition)
        return broker.metadata.create_partitions(name, more.first_partition, more.assignment)

    broker.helpers.submit(store, stored)


def change_topic_configs(
    broker: BrokerServices,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    done: Callable[[BrokerError | None], None],
) -> None:
    """Change a topic's settings and tell its logs; `done` gets the error.

    `change` makes the new settings out of those that are there, and raises BrokerError if they
    cannot be. It is called in a helper thread.
    """

    def stored(topic: Topic | None, error: BaseException | None) -> None:
        if topic is None:
            done(as_broker_error(error))
            return
        _tell("altered", topic)
        warn_of_settings(topic.name, topic_config(broker.config, topic.configs))
        # What counts is what is stored now: a later change may be here already, and the topic may
        # have been deleted, and made anew.
        current = broker.metadata.image.topic_by_id(topic.topic_id)
        if current is not None:
            log_config = topic_log_config(broker, current)
            for topic_partition in current.topic_partitions():
                log = broker.logs.get(topic_partition)
                if log is not None:
                    log.update_config(log_config)
                    advance(log)
        done(None)

    broker.helpers.submit(lambda: broker.metadata.update_topic_configs(name, change), stored)


def delete_topic(
    broker: BrokerServices, topic_id: TopicId, done: Callable[[BrokerError | None], None]
) -> None:
    """Delete a topic in two durable steps with the setting aside of its logs in between."""

    def set_aside(topic: Topic) -> Iterator[Step]:
        failure = yield from set_logs_aside(broker, topic)
        if failure is not None:
            # The first step stands: the next start finishes what this one cannot.
            done(failure)
            return
        broker.helpers.submit(
            lambda: broker.metadata.finish_topic_deletion(topic_id),
            lambda _, error: deleted(topic, error),
        )

    def deleted(topic: Topic, error: BaseException | None) -> None:
        if error is None:
            _tell("deleted", topic)
        done(None if error is None else as_broker_error(error))

    def stored(topic: Topic | None, error: BaseException | None) -> None:
        if topic is None:
            done(as_broker_error(error))
        else:
            run_steps(set_aside(topic))

    broker.helpers.submit(lambda: broker.metadata.begin_topic_deletion(topic_id), stored)


def settle(broker: BrokerServices) -> None:
    """At the start, when the logs are loaded: finish what a crash cut short. Blocks.

    Deletions that had begun are finished, and every partition has its log and leads it.
    """
    for topic in list(broker.metadata.image.deleting.values()):
        failure = set_logs_aside_now(broker, topic)
        if failure is None:
            broker.metadata.finish_topic_deletion(topic.topic_id)
            _tell("deleted", topic)
        else:
            _log.error("topic=%s deletion is not finished: %s", topic.name, failure.text)
    for topic in broker.metadata.image.topics.values():
        warn_of_settings(topic.name, topic_config(broker.config, topic.configs))
        failures = make_logs_now(broker, topic)
        if failures:
            partitions = ",".join(str(number) for number in failures)
            _log.error(
                "topic=%s partitions=%s are not served: %s",
                topic.name,
                partitions,
                next(iter(failures.values())).text,
            )


def _tell(event: str, topic: Topic) -> None:
    _log.info(
        "topic=%s %s id=%s partitions=%d configs=%s",
        topic.name,
        event,
        encode_topic_id(topic.topic_id),
        len(topic.partitions),
        dict(topic.configs),
    )


def warn_of_settings(name: str, config: TopicConfig) -> None:
    """Log each setting that a topic was given and that changes nothing."""
    for warning in config.warnings:
        _log.warning("topic=%s %s", name, warning)


def _even_assignment(
    broker: BrokerServices, num_partitions: int, replication_factor: int
) -> Assignment:
    config = broker.config
    partitions = config["num.partitions"] if num_partitions == -1 else num_partitions
    factor = (
        config["default.replication.factor"] if replication_factor == -1 else replication_factor
    )
    if partitions <= 0:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"{num_partitions} partitions are asked for: it must be at least 1, or -1 for the"
            " broker's default",
        )
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise too_many_partitions(partitions)
    brokers = tuple(sorted(broker.metadata.image.brokers))
    if not 1 <= factor <= len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas are asked for: it must be from 1 to {len(brokers)}, the number of"
            " brokers, or -1 for the broker's default",
        )
    # One broker holds everything; spreading over several comes with the cluster.
    return (brokers[:factor],) * partitions


def _manual_assignment(
    broker: BrokerServices, assignment: Mapping[int, Sequence[int]], first_partition: int
) -> Assignment:
    numbers = sorted(assignment)
    if len(numbers) > MAX_PARTITIONS_PER_REQUEST:
        raise too_many_partitions(len(numbers))
    if numbers != list(range(first_partition, first_partition + len(numbers))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assigned partitions must be numbered from {first_partition} without a gap",
        )
    factor = len(assignment[first_partition])
    for number in numbers:
        replicas = assignment[number]
        problem = None
        if not replicas:
            problem = "no replicas"
        elif len(set(replicas)) != len(replicas):
            problem = f"a replica twice: {list(replicas)}"
        elif not set(replicas) <= set(broker.metadata.image.brokers):
            problem = f"replicas on brokers that are not there: {list(replicas)}"
        elif len(replicas) != factor:
            problem = f"{len(replicas)} replicas, but partition {first_partition} has {factor}"
        if problem is not None:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} is assigned {problem}"
            )
    return tuple(tuple(BrokerId(each) for each in assignment[number]) for number in numbers)


def too_many_partitions(partitions: int) -> BrokerError:
    """For a request that asks for more than one may create."""
    return BrokerError(
        ErrorCode.POLICY_VIOLATION,
        f"the request asks for {partitions} partitions; at most {MAX_PARTITIONS_PER_REQUEST} are"
        " created by one request",
    )
