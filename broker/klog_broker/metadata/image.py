"""Metadata images: immutable snapshots of the metadata, which any thread may read."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from klog_broker.config import Listener
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.features import NO_FEATURES, FinalizedFeatures
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

K = TypeVar("K")
V = TypeVar("V")

ALL_BROKERS = ""
"""The key in MetadataImage.broker_configs of the dynamic settings that all brokers share; the other
keys are broker ids as text."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity that a quota limits: pairs of an entity type and a name, sorted by type. The name None
stands for the default entity of its type."""

NO_BROKER = BrokerId(-1)
FIRST_LEADER_EPOCH = LeaderEpoch(0)

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE))

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_NAME = re.compile("[a-zA-Z0-9._-]+")

# Topic ids that Kafka reserves: for "no topic", and for its topic __cluster_metadata.
RESERVED_IDS = frozenset((UUID(int=0), UUID(int=1)))


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker and its advertised addresses, one for each listener."""

    broker_id: BrokerId
    endpoints: tuple[Listener, ...]
    rack: str | None = None

    def endpoint(self, listener_name: str) -> Listener | None:
        """Return the advertised address of the listener, or None if the broker lacks it."""
        return next((each for each in self.endpoints if each.name == listener_name), None)


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """A partition's replicas and leader. `leader` is NO_BROKER while the partition has no leader.

    The partition epoch rises with every change of the partition's state, such as its leader or ISR.
    The leader epoch rises with every new leader, and when the same leader begins a new history of
    the log after records were lost.
    """

    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch = FIRST_LEADER_EPOCH
    partition_epoch: int = 0
    offline: tuple[BrokerId, ...] = ()
    """The replicas that the controller reports as offline."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its partitions by number, and the settings set for the topic, as unparsed text."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionRegistration, ...]
    configs: Mapping[str, str] = field(default_factory=_empty)

    @property
    def is_internal(self) -> bool:
        """Whether the topic stores the coordinators' state (Kafka's internal topics)."""
        return self.name in INTERNAL_TOPICS

    def topic_partitions(self) -> list[TopicPartition]:
        """Return the topic's partitions, in the order of their numbers."""
        return [TopicPartition(self.name, number) for number in range(len(self.partitions))]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole metadata at one moment. `version` rises by one from each image to the next.

    Clients do not see the topics in `deleting`; a topic's name is free once its logs are renamed
    for deletion. `broker_configs` has the dynamic settings of brokers, as unparsed text, by the
    broker's id as text; those that all brokers share have the key ALL_BROKERS.
    """

    cluster_id: str
    controller_id: BrokerId = NO_BROKER
    version: int = 0
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=_empty)
    topics: Mapping[str, Topic] = field(default_factory=_empty)
    topics_by_id: Mapping[TopicId, Topic] = field(default_factory=_empty)
    deleting: Mapping[TopicId, Topic] = field(default_factory=_empty)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_empty)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_empty)
    features: FinalizedFeatures = NO_FEATURES
    _plain: Mapping[str, str] | None = field(default=None, init=False, compare=False, repr=False)

    def names_by_plain_name(self) -> Mapping[str, str]:
        """Return the names of all topics with ``.`` or ``_`` in their names. The key of each is the
        name with ``_`` in place of ``.`` (`plain_name`)."""
        if self._plain is None:
            found = _by_plain_name(self.topics)
            object.__setattr__(self, "_plain", found)
            return found
        return self._plain

    def topic(self, name: str) -> Topic | None:
        """Return the topic named `name`, or None."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic with the id, or None. A topic that was deleted and created again has a
        new id."""
        return self.topics_by_id.get(TopicId(topic_id))

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Return the partition's state, or None if there is no such partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def with_topics(self, topics: Iterable[Topic]) -> "MetadataImage":
        """Return the next image: each of `topics` is added, or replaces the topic with its id."""
        draft = ImageDraft(self)
        for topic in topics:
            draft.put(topic)
        return draft.image()

    def with_broker(self, broker: BrokerRegistration) -> "MetadataImage":
        """Return the next image, with `broker` registered."""
        brokers = MappingProxyType({**self.brokers, broker.broker_id: broker})
        return replace(self, version=self.version + 1, brokers=brokers)

    def with_brokers(self, brokers: Mapping[BrokerId, BrokerRegistration]) -> "MetadataImage":
        """Return the next image, with exactly `brokers` registered."""
        return replace(self, version=self.version + 1, brokers=MappingProxyType(dict(brokers)))

    def with_controller(self, controller_id: BrokerId) -> "MetadataImage":
        """Return the next image, with `controller_id` as the controller."""
        return replace(self, version=self.version + 1, controller_id=controller_id)


def _copy(mapping: Mapping[K, Topic]) -> dict[K, Topic]:
    # copy() reuses the keys' hashes, which takes a tenth of the time of dict(): dict() computes
    # them again.
    return mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)


def _put(everything: dict[K, Mapping[str, V]], key: K, values: Mapping[str, V]) -> None:
    if values:
        everything[key] = MappingProxyType(dict(values))
    else:
        everything.pop(key, None)


class ImageDraft:
    """Collects any number of changes to an image, and makes one new image from them.

    The new image shares all unchanged parts with the old image. A changed part is copied only once,
    so that thousands of changes cost one copy.
    """

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._topics: dict[str, Topic] | None = None
        self._by_id: dict[TopicId, Topic] = {}
        self._deleting: dict[TopicId, Topic] | None = None
        self._deleting_names: set[str] | None = None
        self._plain: dict[str, str] | None = None
        self._changed: dict[str, None] = {}
        self._broker_configs: dict[str, Mapping[str, str]] | None = None
        self._quotas: dict[QuotaEntity, Mapping[str, float]] | None = None

    @property
    def is_changed(self) -> bool:
        """Whether any change of the image has been made."""
        parts = (self._topics, self._deleting, self._broker_configs, self._quotas)
        return any(part is not None for part in parts)

    @property
    def changed_names(self) -> tuple[str, ...]:
        """The names of topics that are added or removed in the next image, or whose settings
        change."""
        return tuple(self._changed)

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics of the next image by name, with the changes made so far."""
        return self._base.topics if self._topics is None else self._topics

    @property
    def topics_by_id(self) -> Mapping[TopicId, Topic]:
        """The topics of the next image by id, with the changes made so far."""
        return self._base.topics_by_id if self._topics is None else self._by_id

    @property
    def deleting(self) -> Mapping[TopicId, Topic]:
        """The topics whose deletion has begun in the next image, with the changes made so far."""
        return self._base.deleting if self._deleting is None else self._deleting

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The dynamic settings of brokers in the next image, with the changes made so far."""
        return self._base.broker_configs if self._broker_configs is None else self._broker_configs

    @property
    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The quotas of the next image by entity, with the changes made so far."""
        return self._base.client_quotas if self._quotas is None else self._quotas

    def names_by_plain_name(self) -> Mapping[str, str]:
        """Return the names of all topics of the next image with ``.`` or ``_`` in their names, with
        the changes made so far. The key of each is the name with ``_`` in place of ``.``."""
        if self._topics is None:
            return self._base.names_by_plain_name()
        if self._plain is None:
            self._plain = _by_plain_name(self._topics)
        return self._plain

    def is_being_deleted(self, name: str) -> bool:
        """Return whether the deletion of a topic named `name` has begun and is not finished."""
        if self._deleting_names is None:
            self._deleting_names = {topic.name for topic in self.deleting.values()}
        return name in self._deleting_names

    def put(self, topic: Topic) -> None:
        """Add a topic to the next image, or replace the topic with the same id."""
        topics = self._own_topics()
        known = self._by_id.get(topic.topic_id)
        if known is None or known.configs != topic.configs:
            self._changed[topic.name] = None
        if known is None and self._plain is not None:
            self._plain.update(_by_plain_name((topic.name,)))
        topics[topic.name] = self._by_id[topic.topic_id] = topic

    def put_partitions(self, states: Mapping[TopicPartition, PartitionRegistration]) -> None:
        """Replace the states of existing partitions in the next image."""
        by_topic: dict[str, dict[int, PartitionRegistration]] = {}
        for (name, partition), state in states.items():
            by_topic.setdefault(name, {})[partition] = state
        for name, changed in by_topic.items():
            topic = self.topics[name]
            partitions = list(topic.partitions)
            for partition, state in changed.items():
                partitions[partition] = state
            self.put(replace(topic, partitions=tuple(partitions)))

    def begin_deletion(self, topic: Topic) -> None:
        """Move a topic from the topics that clients see to `deleting`."""
        topics = self._own_topics()
        del topics[topic.name], self._by_id[topic.topic_id]
        self._plain = None
        self._changed[topic.name] = None
        self._own_deleting()[topic.topic_id] = topic
        self._deleting_names = None

    def finish_deletion(self, topic_id: TopicId) -> None:
        """Remove a topic from `deleting`, which frees its name."""
        del self._own_deleting()[topic_id]
        self._deleting_names = None

    def forget(self, topic: Topic) -> None:
        """Remove a topic, but do not list it in `deleting`, because this broker need not finish the
        deletion: the cluster's controller requests the deletion of the topic's logs."""
        self.begin_deletion(topic)
        self.finish_deletion(topic.topic_id)

    def put_broker_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace all dynamic settings of the broker with the id `name`, or of ALL_BROKERS."""
        if self._broker_configs is None:
            self._broker_configs = dict(self._base.broker_configs)
        _put(self._broker_configs, name, configs)

    def put_quotas(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """Replace all quotas of an entity in the next image."""
        if self._quotas is None:
            self._quotas = dict(self._base.client_quotas)
        _put(self._quotas, entity, quotas)

    def image(self) -> MetadataImage:
        """Return the next image. The draft must not be used afterwards."""
        changed: dict[str, Any] = {"version": self._base.version + 1}
        if self._topics is not None:
            changed["topics"] = MappingProxyType(self._topics)
            changed["topics_by_id"] = MappingProxyType(self._by_id)
        if self._deleting is not None:
            changed["deleting"] = MappingProxyType(self._deleting)
        if self._broker_configs is not None:
            changed["broker_configs"] = MappingProxyType(self._broker_configs)
        if self._quotas is not None:
            changed["client_quotas"] = MappingProxyType(self._quotas)
        return replace(self._base, **changed)

    def _own_topics(self) -> dict[str, Topic]:
        if self._topics is None:
            self._topics, self._by_id = _copy(self._base.topics), _copy(self._base.topics_by_id)
        return self._topics

    def _own_deleting(self) -> dict[TopicId, Topic]:
        if self._deleting is None:
            self._deleting = _copy(self._base.deleting)
        return self._deleting


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless Kafka allows `name`."""
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


def check_no_collision(name: str, image: MetadataImage | ImageDraft) -> None:
    """Raise InvalidTopicName if an existing topic's name differs from `name` in ``.`` and ``_``
    only.

    Kafka refuses such names, because the names of its metrics have ``_`` for both characters.
    """
    if "." in name or "_" in name:
        other = image.names_by_plain_name().get(plain_name(name), name)
        if other != name:
            raise collision(name, other)


def _by_plain_name(names: Iterable[str]) -> dict[str, str]:
    return {plain_name(name): name for name in names if "." in name or "_" in name}


def plain_name(name: str) -> str:
    """Return a topic's name as Kafka's metrics write it: with ``_`` in place of ``.``."""
    return name.replace(".", "_")


def collision(name: str, other: str) -> InvalidTopicName:
    """Return the error for a new topic `name` whose `plain_name` is also the plain name of the
    existing topic `other`."""
    return InvalidTopicName(
        f"topic {name} differs from the existing topic {other} only in '.' and '_', which"
        " metrics' names do not tell apart"
    )


def new_id(chance: Chance) -> UUID:
    """Return a random id that Kafka does not reserve. The id's text does not begin with ``-``,
    because command line tools would take such a text for an option."""
    while True:
        found = chance.uuid()
        if found not in RESERVED_IDS and not encode_topic_id(found).startswith("-"):
            return found
