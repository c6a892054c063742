"""Plan changes of topics: check them against the present metadata image, and change nothing.

A change that is not possible raises BrokerError with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from klog_broker.config import (
    TOPIC_SETTINGS,
    ConfigError,
    Setting,
    TopicConfig,
    topic_config,
)
from klog_broker.config.broker_config import STRICT
from klog_broker.config.types import SettingType, nearest
from klog_broker.controller.decisions.placement import Assignment, place_replicas, start_of_more
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import (
    CLUSTER_METADATA,
    Topic,
    check_no_collision,
    check_topic_name,
)
from klog_broker.metadata.interface import NewTopic
from klog_broker.topics.internal import internal_topic
from klog_broker.topics.services import TopicServices
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId

# The largest number of partitions that one request may create, as in Kafka. Each partition costs
# memory while it is planned, and files once it is created.
MAX_PARTITIONS_PER_REQUEST = 10_000


class MorePartitions(NamedTuple):
    """The partitions that a plan adds to a topic, numbered from `first_partition` on; `assignment`
    has the brokers of their replicas."""

    first_partition: int
    assignment: Assignment


def plan_new_topic(
    broker: TopicServices,
    name: str,
    *,
    num_partitions: int = -1,
    replication_factor: int = -1,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> NewTopic:
    """Return the plan of a topic to be created. -1 partitions or replicas mean the broker's
    default.

    An internal topic always gets the partitions, replicas and settings that `internal_topic` takes
    from the broker's settings, even if a client creates the topic; the client's other settings
    apply. Kafka lets clients choose all of these, and its coordinators may not work if the choice
    is wrong.

    BrokerError if the topic is refused.
    """
    image = broker.metadata.image
    own = internal_topic(name, broker.config)
    if own is not None:
        num_partitions, assignment = own.num_partitions, None
        configs = {**(configs or {}), **own.configs}
        replication_factor = own.replication_factor
        if broker.metadata.is_standalone:
            replication_factor = min(replication_factor, len(image.brokers))
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
        planned = _spread_assignment(broker, num_partitions, replication_factor)
    check_effects(broker, configs or ())
    checked_topic_config(broker, configs or {})
    return NewTopic(name, planned, dict(configs or {}))


def plan_more_partitions(
    broker: TopicServices, topic: Topic, count: int, assignment: Sequence[Sequence[int]] | None
) -> MorePartitions:
    """Return the partitions to add so that `topic` has `count` partitions, or raise BrokerError."""
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
        return MorePartitions(current, _spread_more(broker, topic, added))
    if len(assignment) != added:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas are assigned to {len(assignment)} partitions, but {added} are to be added",
        )
    by_number = {current + index: replicas for index, replicas in enumerate(assignment)}
    planned = _manual_assignment(broker, by_number, current)
    factor = len(topic.partitions[0].replicas)
    if len(planned[0]) != factor:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {current} is assigned {len(planned[0])} replicas, but partition 0 of topic"
            f" {topic.name} has {factor}",
        )
    return MorePartitions(current, planned)


def checked_topic_config(broker: TopicServices, configs: Mapping[str, str]) -> TopicConfig:
    """Return a topic's checked settings, or raise BrokerError INVALID_CONFIG with the reason."""
    try:
        config = topic_config(broker.config, configs)
        config.check_together()
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return config


def check_effects(broker: TopicServices, names: Iterable[str]) -> None:
    """Raise BrokerError INVALID_CONFIG if strict.configs=true and klog accepts one of the topic
    settings ``names`` without effect."""
    if not broker.config["strict.configs"]:
        return
    for name in names:
        row = TOPIC_SETTINGS.get(name)
        if row is not None and row.effect:
            text = f"topic setting {name} has no effect here. {row.effect} {STRICT}"
            raise BrokerError(ErrorCode.INVALID_CONFIG, text)


def list_setting(name: str, rows: Mapping[str, Setting]) -> None:
    """Raise BrokerError INVALID_CONFIG unless the setting ``name`` is a list, whose items can be
    added and removed."""
    row = rows.get(name)
    if row is None:
        near = nearest(name, rows)
        text = f"{name} is no list setting of klog" + (f"; did you mean {near}?" if near else "")
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
    if row.type is not SettingType.LIST:
        text = f"{name} is no list, so items can be neither added nor removed"
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)


def _spread_assignment(
    broker: TopicServices, num_partitions: int, replication_factor: int
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
    racks = _racks(broker, factor)
    # With a single broker all replicas are on that broker. Draw no random number then, because a
    # draw would change the random numbers that simulations with one broker get afterwards.
    start, shift = (
        (broker.chance.below(len(racks)), broker.chance.below(len(racks)))
        if len(racks) > 1
        else (0, 0)
    )
    return place_replicas(racks, partitions, factor, start=start, shift=shift)


def _spread_more(broker: TopicServices, topic: Topic, added: int) -> Assignment:
    first = topic.partitions[0].replicas
    racks = _racks(broker, len(first))
    start = start_of_more(racks, first[0])
    return place_replicas(
        racks,
        added,
        len(first),
        start=start,
        shift=start,
        first_partition=len(topic.partitions),
    )


def _racks(broker: TopicServices, factor: int) -> dict[BrokerId, str | None]:
    """Return the rack of each broker. BrokerError if `factor` is below 1, or above the number of
    live brokers."""
    brokers = broker.metadata.image.brokers
    if not 1 <= factor <= len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas, expected 1 to {len(brokers)}, the number of live brokers; a new"
            " topic with -1 has the broker's default number of replicas",
        )
    return {each.broker_id: each.rack for each in brokers.values()}


def _manual_assignment(
    broker: TopicServices, assignment: Mapping[int, Sequence[int]], first_partition: int
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
            problem = f"the same broker twice: {list(replicas)}"
        elif not set(replicas) <= set(broker.metadata.image.brokers):
            problem = f"a broker that does not exist or is not alive: {list(replicas)}"
        elif len(replicas) != factor:
            problem = f"{len(replicas)} replicas, but partition {first_partition} has {factor}"
        if problem is not None:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} is assigned {problem}"
            )
    return tuple(tuple(BrokerId(each) for each in assignment[number]) for number in numbers)


def too_many_partitions(partitions: int) -> BrokerError:
    """The error for a request that asks for more partitions than one request may create."""
    return BrokerError(
        ErrorCode.POLICY_VIOLATION,
        f"the request asks for {partitions} partitions; at most {MAX_PARTITIONS_PER_REQUEST} are"
        " created by one request",
    )
