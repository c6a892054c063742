"""Changes to topics, for the handlers that make them: plan (checks, no effect), then change.

A plan is made from the current image and raises BrokerError with a sentence. A change is asked of
the metadata store, which makes it durable and has the logs follow; then ``done`` is called.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from klog_broker.config import TopicConfig, topic_config
from klog_broker.config.types import ConfigError
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.strangers import Strangers
from klog_broker.handlers.topic_errors import as_broker_error
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import (
    CLUSTER_METADATA,
    MetadataImage,
    Topic,
    check_no_collision,
    check_topic_name,
)
from klog_broker.metadata.interface import NewTopic
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import BrokerId, TopicId

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
    """Create the topics; `done` gets a topic or an error for each of them."""
    refused: dict[int, BrokerError] = {}

    def find_strangers() -> list[KlogError | None]:
        strangers = Strangers(broker, [new.name for new in planned])
        return [_refusal(strangers, new.name) for new in planned]

    def found(refusals: list[KlogError | None] | None, error: BaseException | None) -> None:
        if refusals is None:
            done([as_broker_error(error) for _ in planned])
            return
        refused.update(
            (number, as_broker_error(refusal))
            for number, refusal in enumerate(refusals)
            if refusal is not None
        )
        wanted = [new for number, new in enumerate(planned) if number not in refused]
        broker.metadata.create_topics(wanted, created)

    def created(outcomes: list[Topic | Exception]) -> None:
        answers = iter(outcomes)
        done(
            [
                refused[number] if number in refused else _answer(next(answers))
                for number in range(len(planned))
            ]
        )

    broker.helpers.submit(find_strangers, found)


def _refusal(strangers: Strangers, name: str, first_new: int = 0) -> KlogError | None:
    try:
        strangers.check(name, first_new)
    except KlogError as error:
        return error
    return None


def _answer(outcome: Topic | Exception) -> Topic | BrokerError:
    return as_broker_error(outcome) if isinstance(outcome, Exception) else outcome


def add_partitions(
    broker: BrokerServices,
    name: str,
    more: MorePartitions,
    done: Callable[[Topic | BrokerError], None],
) -> None:
    """Add partitions to a topic; `done` gets the topic as it is then, or an error."""

    def find_strangers() -> None:
        Strangers(broker, [name]).check(name, more.first_partition)

    def found(_: None, error: BaseException | None) -> None:
        if error is not None:
            done(as_broker_error(error))
            return
        broker.metadata.create_partitions(
            name,
            more.first_partition,
            more.assignment,
            lambda outcome: done(_answer(outcome)),
        )

    broker.helpers.submit(find_strangers, found)


def change_topic_configs(
    broker: BrokerServices,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    done: Callable[[BrokerError | None], None],
) -> None:
    """Change a topic's settings and tell its logs; `done` gets the error.

    `change` makes the new settings out of those that are there, and raises BrokerError if they
    cannot be.
    """
    broker.metadata.update_topic_configs(name, change, lambda outcome: done(_error(outcome)))


def delete_topic(
    broker: BrokerServices, topic_id: TopicId, done: Callable[[BrokerError | None], None]
) -> None:
    """Delete a topic; `done` gets the error."""
    broker.metadata.delete_topic(topic_id, lambda outcome: done(_error(outcome)))


def _error(outcome: Topic | Exception) -> BrokerError | None:
    return as_broker_error(outcome) if isinstance(outcome, Exception) else None


def image_changed(broker: BrokerServices, image: MetadataImage, names: Sequence[str]) -> None:
    """Tell everybody whose work depends on them of topics that came, went or have other settings.

    What the metadata store calls with each new image.
    """
    known: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
    broker.replicas.topics_changed([name for name in names if image.topic(name) is not None])
    for name in names:
        topic = image.topic(name)
        if topic is None:
            for tell in broker.on_topic_deleted:
                tell(name)
            continue
        if topic.configs:
            # Topics that come together have the same settings, mostly, and reading them takes long.
            key = tuple(topic.configs.items())
            if key not in known:
                known[key] = topic_config(broker.config, topic.configs)
            warn_of_settings(name, known[key])


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
