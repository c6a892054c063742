"""The metadata of a broker in a cluster: what it sees of the cluster, and what it asks to change.

Settings and quotas any broker changes, in ZooKeeper. Topics are changed by the controller, which
this broker may be, and producer ids come from there.
"""

# ruff: noqa: ARG002 - what only a broker that runs alone does looks at nothing here

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from klog_broker.metadata.directory_assignments import DirectoryAssignments, DirectoryOf
from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.errors import NotInClusters
from klog_broker.metadata.image import BrokerRegistration, MetadataImage, QuotaEntity, Topic
from klog_broker.metadata.interface import (
    CHANGE_TIMEOUT_MS,
    Done,
    NewTopic,
    OnImage,
    ProducerIdBlock,
)
from klog_broker.metadata.role_changes import ApplyRoleChanges
from klog_broker.metadata.zookeeper.consumer_offsets import ConsumerOffsets
from klog_broker.metadata.zookeeper.settings import ClusterSettings
from klog_broker.metadata.zookeeper.settings_changes import SettingsChanges
from klog_broker.metadata.zookeeper.settings_image import with_settings
from klog_broker.metadata.zookeeper.settings_reading import Settings
from klog_broker.metadata.zookeeper.view import ClusterView
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import BrokerId, DirectoryId, TopicId, TopicPartition

_NONE: Mapping[str, str] = MappingProxyType({})


class TopicChanges(Protocol):
    """Changes of topics as MetadataStore has them, made by the controller that this broker may be;
    NOT_CONTROLLER (BrokerError) while it is not."""

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int,
    ) -> None:
        """Add topics, each by itself."""

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
        *,
        timeout_ms: int,
    ) -> None:
        """Add partitions."""

    def delete_topic(self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int) -> None:
        """Delete a topic: `done` when clients no longer see it."""

    def image_changed(self) -> None:
        """The image is another one: who waits for it hears of it."""


class ClusterStore:
    """A `MetadataStore` whose image is that of `view`: what ZooKeeper and the controller tell, from
    the moment when the broker has joined the cluster."""

    def __init__(
        self,
        loop: Loop,
        cluster_id: str,
        *,
        register: Callable[[BrokerRegistration], None],
    ) -> None:
        """`register` is called with this broker's addresses, once they are known."""
        self.view = ClusterView(cluster_id, self.topic_configs)
        self.settings = ClusterSettings(loop, self._settings_are)
        """Settings and quotas in ZooKeeper, which it follows through the broker's sessions."""
        self.consumer_offsets = ConsumerOffsets(loop)
        """Positions in ZooKeeper of consumers that keep them there."""
        self._settings_changes = SettingsChanges(loop, self.settings, lambda: self.view.image)
        self._register = register
        self.changes: TopicChanges
        """Who asks the controller for changes of topics; set at once."""
        self.allocate: Callable[[Done[ProducerIdBlock]], None]
        """Who asks it for producer ids; set before any is wanted."""
        self.on_settings: Callable[[Settings], None] | None = None
        """Called with settings that were read, once they are in force."""
        self._on_image: OnImage | None = None
        self._seen = self.view.image
        self._learnt: dict[str, TopicId] = {}
        """Topics whose settings are known, and that the image does not show yet."""
        self._unlearnt: set[TopicId] = set()
        """Topics that it shows, and whose settings are being asked for."""
        self.view.on_image = self._image_is

    @property
    def image(self) -> MetadataImage:
        """The newest state."""
        return self.view.image

    @property
    def is_new(self) -> bool:
        """A cluster's metadata are never this broker's to begin."""
        return False

    # --- what is told ----------------------------------------------------------------------------
    @property
    def is_standalone(self) -> bool:
        """See MetadataStore."""
        return False

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The settings given for a topic, also before the image shows it."""
        return self.settings.topic_configs.get(name, _NONE)

    def learn_topics(self, topics: Mapping[str, TopicId], done: Callable[[], None]) -> None:
        """`done` once the settings of these topics are known. Waits for ZooKeeper if need be."""
        new = {name: topic_id for name, topic_id in topics.items() if not self._knows(topic_id)}
        if not new:
            done()
            return

        def learnt() -> None:
            self._learnt.update(
                (name, topic_id)
                for name, topic_id in new.items()
                if self.image.topic_by_id(topic_id) is None
            )
            done()

        self.settings.learn_topics(list(new), learnt)

    def is_reading_settings_of(self, topic_id: TopicId) -> bool:
        """Whether the image shows a topic without its settings, because they are still being read
        from ZooKeeper (`learn_topics` waits for them)."""
        return topic_id in self._unlearnt

    def _knows(self, topic_id: TopicId) -> bool:
        return self.image.topic_by_id(topic_id) is not None and topic_id not in self._unlearnt

    def _settings_are(self, found: Settings, is_all: bool) -> None:
        image, names = with_settings(self.image, found, is_all=is_all)
        if image is not self.image:
            self.view.take(image, names)
        if self.on_settings is not None:
            self.on_settings(found)

    def _image_is(self, image: MetadataImage, names: Sequence[str]) -> None:
        before, self._seen = self._seen, image
        unknown: dict[str, TopicId] = {}
        for name in names:
            old, new = before.topic(name), image.topic(name)
            if new is not None and (old is None or old.topic_id != new.topic_id):
                if self._learnt.pop(name, None) != new.topic_id:
                    unknown[name] = new.topic_id
            elif new is None and name not in self._learnt:
                self.settings.forget_topic(name)
        if unknown:
            # No replica of these is here: the settings may come later than the topic.
            self._unlearnt.update(unknown.values())
            self.settings.learn_topics(
                list(unknown), lambda: self._unlearnt.difference_update(unknown.values())
            )
        if self._on_image is not None:
            self._on_image(image, names)
        self.changes.image_changed()

    # --- at the start ----------------------------------------------------------------------------
    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """See AdoptingStore; a cluster takes nothing in, and nobody asks."""
        raise NotInClusters("a broker in a cluster takes no topics in")

    def start(
        self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyRoleChanges
    ) -> None:
        """See MetadataStore. The orders are a controller's, and do not come through here."""
        self._on_image = on_image

    @property
    def assignments(self) -> DirectoryAssignments:
        """See AdoptingStore. A cluster does not keep them, like Kafka 3.9 with ZooKeeper: followers
        copy missing data from their leaders."""
        return DirectoryAssignments()

    def take_directories(
        self, directories: Mapping[DirectoryId, Path], missing: Collection[TopicPartition]
    ) -> None:
        """See AdoptingStore. A cluster does not keep them."""

    def elect(
        self,
        found: Mapping[TopicPartition, FoundLog],
        directory_of: DirectoryOf | None = None,
    ) -> None:
        """See AdoptingStore. Orders give replicas their roles; until then they have none."""
        self.view.take(self.image)

    def register_broker(self, broker: BrokerRegistration) -> None:
        """See MetadataStore. The image shows the broker when ZooKeeper has it."""
        self._register(broker)

    # --- changes ---------------------------------------------------------------------------------
    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        """See MetadataStore."""
        self.changes.create_topics(topics, done, timeout_ms=timeout_ms)

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        """See MetadataStore."""
        self.changes.create_partitions(
            name, first_partition, assignment, done, timeout_ms=timeout_ms
        )

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """See MetadataStore."""
        self._settings_changes.update_topic_configs(name, update, done)

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """See MetadataStore."""
        self._settings_changes.update_broker_configs(name, update, done)

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """See MetadataStore. Each entity is changed by itself."""
        self._settings_changes.update_client_quotas(updates, done)

    def delete_topic(
        self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int = CHANGE_TIMEOUT_MS
    ) -> None:
        """See MetadataStore."""
        self.changes.delete_topic(topic_id, done, timeout_ms=timeout_ms)

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """See MetadataStore."""
        self.allocate(done)

    def close(self) -> None:
        """Nothing to do: whoever has the sessions closes them."""
