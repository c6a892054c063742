"""The metadata store of a broker in a cluster that uses ZooKeeper.

Any broker changes settings and quotas, in ZooKeeper. Only the controller, which may be this broker,
changes topics and allocates producer ids.
"""

# ruff: noqa: ARG002 - methods that only a standalone broker needs do not use their arguments

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
from klog_broker.metadata.zookeeper.image_updater import ImageUpdater
from klog_broker.metadata.zookeeper.settings import ClusterSettings
from klog_broker.metadata.zookeeper.settings_changes import SettingsChanges
from klog_broker.metadata.zookeeper.settings_image import with_settings
from klog_broker.metadata.zookeeper.settings_reading import Settings
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import BrokerId, DirectoryId, TopicId, TopicPartition

_NONE: Mapping[str, str] = MappingProxyType({})


class TopicChanges(Protocol):
    """The topic changes of MetadataStore, which only the controller makes. A change fails with
    NOT_CONTROLLER (a BrokerError) while this broker is not the controller."""

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int,
    ) -> None:
        """Create topics independently of each other: `done` gets a topic or an error for each."""

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
        *,
        timeout_ms: int,
    ) -> None:
        """Add partitions to a topic from number `first_partition` on."""

    def delete_topic(self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int) -> None:
        """Delete a topic, and call `done` when clients no longer see the topic."""

    def deleting_topics(self) -> Collection[str]:
        """Return the topics whose deletion waits for brokers, if this broker is the controller."""

    def image_changed(self) -> None:
        """Finish the topic changes that the new image shows. A topic change reports success only
        when this broker's image shows the change."""


class ClusterStore:
    """The `MetadataStore` of a broker in a cluster. Its image is that of `view`, the
    ImageUpdater, which follows ZooKeeper and the controller from the moment when the broker has
    joined the cluster."""

    def __init__(
        self,
        loop: Loop,
        cluster_id: str,
        *,
        register: Callable[[BrokerRegistration], None],
    ) -> None:
        """`register` is called with this broker's addresses once the addresses are known."""
        self.view = ImageUpdater(cluster_id, self.topic_configs)
        self.settings = ClusterSettings(loop, self._settings_are)
        """Reads and changes the settings and quotas in ZooKeeper."""
        self.consumer_offsets = ConsumerOffsets(loop)
        """The committed offsets in ZooKeeper of consumers that use version 0 of OffsetCommit."""
        self._settings_changes = SettingsChanges(loop, self.settings, lambda: self.view.image)
        self._register = register
        self.changes: TopicChanges
        """Makes the topic changes; set right after the store is made."""
        self.allocate: Callable[[Done[ProducerIdBlock]], None]
        """Requests a block of producer ids from the controller; set before the first request."""
        self.on_settings: Callable[[Settings], None] | None = None
        """Called with settings that this broker has read from ZooKeeper or written there, once the
        image shows them. Settings of topics that the image lacks are passed, too."""
        self._on_image: OnImage | None = None
        self._seen = self.view.image
        self._learnt: dict[str, TopicId] = {}
        """Topics whose settings are known, but which the image does not show yet."""
        self._unlearnt: set[TopicId] = set()
        """Topics that the image shows, but whose settings are still being read."""
        self.view.on_image = self._image_is

    @property
    def image(self) -> MetadataImage:
        """The newest image of the cluster that this broker knows."""
        return self.view.image

    @property
    def is_new(self) -> bool:
        """False: the metadata belong to the cluster, so this broker never begins a new store."""
        return False

    @property
    def is_standalone(self) -> bool:
        """False: other brokers of the cluster may host replicas, too."""
        return False

    @property
    def has_failed(self) -> bool:
        """False: changes are stored in ZooKeeper, which can be available again later."""
        return False

    def deleting_topics(self) -> Collection[str]:
        """Return the topics whose deletion waits for brokers, if this broker is the controller."""
        return self.changes.deleting_topics()

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings set for a topic, even before the image shows the topic."""
        return self.settings.topic_configs.get(name, _NONE)

    def learn_topics(self, topics: Mapping[str, TopicId], done: Callable[[], None]) -> None:
        """Call `done` once the settings of `topics` are known: at once, or after ZooKeeper's
        response."""
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
            self.view.set_image(image, names)
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
            # This broker leads and follows no partition of these topics yet, because it reads a
            # topic's settings before it begins to do so. So the settings may be read after the
            # image shows the topics.
            self._unlearnt.update(unknown.values())
            self.settings.learn_topics(
                list(unknown), lambda: self._unlearnt.difference_update(unknown.values())
            )
        if self._on_image is not None:
            self._on_image(image, names)
        self.changes.image_changed()

    # --- calls during the broker's start-up ------------------------------------------------------
    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """Raise NotInClusters: only a standalone broker adds topics of unknown partition folders to
        its metadata."""
        raise NotInClusters("only a standalone broker adopts partition folders")

    def start(
        self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyRoleChanges
    ) -> None:
        """Set the callback for new images. `apply` is not used, because the role changes come in
        the controller's requests."""
        self._on_image = on_image

    @property
    def assignments(self) -> DirectoryAssignments:
        """Empty: like Kafka 3.9 with ZooKeeper, a cluster does not store the data directory of each
        log, because followers copy missing data from their leaders."""
        return DirectoryAssignments()

    def record_directories(
        self, directories: Mapping[DirectoryId, Path], missing: Collection[TopicPartition]
    ) -> None:
        """Do nothing, because a cluster does not store the data directory of each log."""

    def elect(
        self,
        found: Mapping[TopicPartition, FoundLog],
        directory_of: DirectoryOf | None = None,
    ) -> None:
        """Pass the image to the `on_image` callback. This broker's replicas get their roles later,
        from the controller's requests."""
        self.view.set_image(self.image)

    def register_broker(self, broker: BrokerRegistration) -> None:
        """Register this broker in ZooKeeper; the image shows the broker once that is done."""
        self._register(broker)

    # --- requests to change the metadata ---------------------------------------------------------
    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        """Create topics independently of each other: `done` gets a topic or an error for each."""
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
        """Add partitions to a topic from number `first_partition` on."""
        self.changes.create_partitions(
            name, first_partition, assignment, done, timeout_ms=timeout_ms
        )

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """Replace a topic's settings by the result of `update(settings)`."""
        self._settings_changes.update_topic_configs(name, update, done)

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """Replace the dynamic settings of `name` (a broker's id as text, or ALL_BROKERS) by the
        result of `update`, which gets the dynamic settings of all names."""
        self._settings_changes.update_broker_configs(name, update, done)

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """Set quotas, and remove each quota whose value is None. The quotas of each entity (users,
        client ids, addresses) are changed independently of each other."""
        self._settings_changes.update_client_quotas(updates, done)

    def delete_topic(
        self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int = CHANGE_TIMEOUT_MS
    ) -> None:
        """Delete a topic, and call `done` when clients no longer see the topic."""
        self.changes.delete_topic(topic_id, done, timeout_ms=timeout_ms)

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """Request a block of producer ids from the controller."""
        self.allocate(done)

    def close(self) -> None:
        """Do nothing, because the owner of the ZooKeeper sessions closes them."""
