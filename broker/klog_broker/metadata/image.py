"""A snapshot of the metadata: immutable, so any thread may read it while the next one is made."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from klog_broker.config import Listener
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.runtime.chance import Chance
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

NO_BROKER = BrokerId(-1)
FIRST_LEADER_EPOCH = LeaderEpoch(0)

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_NAME = re.compile("[a-zA-Z0-9._-]+")

# Kafka keeps these ids for itself: "none" and its own metadata topic.
RESERVED_IDS = frozenset((UUID(int=0), UUID(int=1)))


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker and the addresses that clients are told, one for each listener."""

    broker_id: BrokerId
    endpoints: tuple[Listener, ...]
    rack: str | None = None

    def endpoint(self, listener_name: str) -> Listener | None:
        """The address for clients of that listener, or None."""
        return next((each for each in self.endpoints if each.name == listener_name), None)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who holds a partition and who leads it. `leader` is NO_BROKER while nobody can."""

    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch = FIRST_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its partitions by number, and the settings given for it (texts, as they came)."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=_empty)

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself keeps its state in the topic."""
        return self.name in INTERNAL_TOPICS

    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions by name and number."""
        return [TopicPartition(self.name, number) for number in range(len(self.partitions))]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything at one moment. `version` rises by one with every change.

    A topic in `deleting` is gone for clients; its name is free again once its logs are set aside.
    """

    cluster_id: str
    controller_id: BrokerId = NO_BROKER
    version: int = 0
    brokers: Mapping[BrokerId, Broker] = field(default_factory=_empty)
    topics: Mapping[str, Topic] = field(default_factory=_empty)
    topics_by_id: Mapping[TopicId, Topic] = field(default_factory=_empty)
    deleting: Mapping[TopicId, Topic] = field(default_factory=_empty)
    _plain: Mapping[str, str] | None = field(default=None, init=False, compare=False, repr=False)

    def names_by_plain_name(self) -> Mapping[str, str]:
        """Of topics with ``.`` or ``_`` in their names; found out when it is first asked for."""
        if self._plain is None:
            found = {plain_name(name): name for name in self.topics if "." in name or "_" in name}
            object.__setattr__(self, "_plain", found)
            return found
        return self._plain

    def topic(self, name: str) -> Topic | None:
        """The topic of that name, or None."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """The topic of that id, or None (also for the id of a topic that was created anew)."""
        return self.topics_by_id.get(TopicId(topic_id))

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """That partition's state, or None."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def with_topics(self, topics: Iterable[Topic]) -> "MetadataImage":
        """The next image, with each of `topics` added or in place of the one with its id."""
        by_name, by_id = dict(self.topics), dict(self.topics_by_id)
        for topic in topics:
            by_name[topic.name] = by_id[topic.topic_id] = topic
        return replace(
            self,
            version=self.version + 1,
            topics=MappingProxyType(by_name),
            topics_by_id=MappingProxyType(by_id),
        )

    def with_deletion_begun(self, topic: Topic) -> "MetadataImage":
        """The next image, with `topic` among those that are being deleted."""
        return replace(
            self,
            version=self.version + 1,
            topics=MappingProxyType({k: v for k, v in self.topics.items() if k != topic.name}),
            topics_by_id=_without(self.topics_by_id, topic.topic_id),
            deleting=MappingProxyType({**self.deleting, topic.topic_id: topic}),
        )

    def with_deletion_finished(self, topic_id: TopicId) -> "MetadataImage":
        """The next image, without any trace of that topic."""
        return replace(self, version=self.version + 1, deleting=_without(self.deleting, topic_id))

    def with_broker(self, broker: Broker) -> "MetadataImage":
        """The next image, with `broker` registered."""
        brokers = MappingProxyType({**self.brokers, broker.broker_id: broker})
        return replace(self, version=self.version + 1, brokers=brokers)


def _without(topics: Mapping[TopicId, Topic], topic_id: TopicId) -> Mapping[TopicId, Topic]:
    return MappingProxyType({key: topic for key, topic in topics.items() if key != topic_id})


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless `name` is one that Kafka allows."""
    if not name:
        raise InvalidTopicName("the topic's name is empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic cannot be named {name!r}")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicName(
            f"the topic's name has {len(name)} characters; at most {MAX_TOPIC_NAME_LENGTH} are"
            f" allowed: {name[:40]}..."
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicName(
            f"the topic's name {name!r} has characters other than ASCII letters, digits, '.', '_'"
            " and '-'"
        )


def check_no_collision(name: str, image: MetadataImage) -> None:
    """Raise InvalidTopicName if a topic's name differs from `name` in ``.`` and ``_`` only.

    Kafka refuses those, since its metrics' names do not tell the two characters apart.
    """
    if "." in name or "_" in name:
        other = image.names_by_plain_name().get(plain_name(name), name)
        if other != name:
            raise collision(name, other)


def plain_name(name: str) -> str:
    """What metrics' names leave of a topic's name."""
    return name.replace(".", "_")


def collision(name: str, other: str) -> InvalidTopicName:
    """For a name whose plain name is another topic's."""
    return InvalidTopicName(
        f"topic {name} differs from the existing topic {other} only in '.' and '_', which"
        " metrics' names do not tell apart"
    )


def new_id(chance: Chance) -> UUID:
    """A random id that Kafka does not keep for itself, and whose text does not look like an option.

    A text that begins with ``-`` would be taken for an option by command line tools.
    """
    while True:
        found = chance.uuid()
        if found not in RESERVED_IDS and not encode_topic_id(found).startswith("-"):
            return found
