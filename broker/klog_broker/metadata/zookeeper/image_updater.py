"""The metadata image of a broker in a cluster: brokers, controller and settings come from
ZooKeeper, the topics' partitions from the controller's UpdateMetadata requests."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from klog_broker.metadata.image import (
    NO_BROKER,
    BrokerRegistration,
    ImageDraft,
    MetadataImage,
    PartitionRegistration,
    Topic,
)
from klog_broker.metadata.interface import OnImage
from pyspark_klog.ids import NO_LEADER_EPOCH, BrokerId, TopicId

UNKNOWN_STATE = PartitionRegistration((), (), NO_BROKER, NO_LEADER_EPOCH, -1)
"""The state in the image of a partition for which the controller has sent no state, although it has
sent the state of a partition with a higher number."""


class TopicUpdate(NamedTuple):
    """The states of a topic's partitions, by number, in an update from the controller. Partitions
    that are missing keep their states, unless the update describes all topics of the cluster."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionRegistration]
    is_deleted: bool = False
    """Whether the topic is to be deleted: clients no longer see it."""


class ImageUpdater:
    """Makes a new metadata image for each change of the brokers, the controller or the topics. For
    the loop's thread. `on_image`, if set, is called with each new image."""

    def __init__(self, cluster_id: str, configs_of: Callable[[str], Mapping[str, str]]) -> None:
        """`configs_of` returns a topic's settings by the topic's name. ImageUpdater calls it
        for each topic that is new to the image."""
        self.image = MetadataImage(cluster_id)
        self.on_image: OnImage | None = None
        self.unreadable: Set[str] = frozenset()
        """The names of existing topics whose znodes the controller cannot read. The image shows
        such a topic as an earlier update described it, if there was one."""
        self._configs_of = configs_of

    def set_image(self, image: MetadataImage, names: Sequence[str] = ()) -> None:
        """Replace the image. `names` has the topics that were added or removed, or whose settings
        changed."""
        self.image = image
        if self.on_image is not None:
            self.on_image(image, names)

    def update_brokers(self, brokers: Mapping[BrokerId, BrokerRegistration]) -> None:
        """Replace the image's brokers by the registered `brokers`."""
        if brokers != self.image.brokers:
            self.set_image(self.image.with_brokers(brokers))

    def update_controller(self, controller_id: BrokerId) -> None:
        """Replace the image's controller; NO_BROKER means none, or an unknown controller."""
        if controller_id != self.image.controller_id:
            self.set_image(self.image.with_controller(controller_id))

    def update_topics(
        self, updates: Sequence[TopicUpdate], *, is_all: bool, unreadable: Set[str] = frozenset()
    ) -> None:
        """Apply the controller's update `updates`. If `is_all`, the update is complete: all other
        topics are removed, except those that the controller cannot read (`unreadable`).

        If a topic was deleted and created again under the same name, `on_image` first gets an image
        without the topic, and then the image with the new topic.
        """
        # Use each name and each id once, so that an update that contradicts itself cannot make an
        # inconsistent image.
        updates = list({each.topic_id: each for each in updates}.values())
        updates = list({each.name: each for each in updates}.values())
        self.unreadable = (unreadable if is_all else self.unreadable) - {
            each.name for each in updates
        }
        gone = self._removed_topics(updates, unreadable, is_all=is_all)
        if gone:
            draft = ImageDraft(self.image)
            for topic in gone:
                draft.forget(topic)
            self.set_image(draft.image(), draft.changed_names)
        draft = ImageDraft(self.image)
        for each in updates:
            if not each.is_deleted:
                draft.put(self._updated_topic(draft.topics.get(each.name), each, is_all=is_all))
        if draft.is_changed:
            self.set_image(draft.image(), draft.changed_names)

    def _removed_topics(
        self, updates: Sequence[TopicUpdate], unreadable: Set[str], *, is_all: bool
    ) -> Iterable[Topic]:
        gone: dict[TopicId, Topic] = {}
        for each in updates:
            known, same = self.image.topic(each.name), self.image.topic_by_id(each.topic_id)
            if known is not None and (known.topic_id == each.topic_id) is each.is_deleted:
                gone[known.topic_id] = known
            if same is not None and same.name != each.name:
                gone[same.topic_id] = same
        if is_all:
            named = {each.name for each in updates} | unreadable
            gone |= {
                each.topic_id: each for each in self.image.topics.values() if each.name not in named
            }
        return gone.values()

    def _updated_topic(self, known: Topic | None, updates: TopicUpdate, *, is_all: bool) -> Topic:
        before = () if known is None or is_all else known.partitions
        count = max(len(before), max(updates.partitions, default=-1) + 1)
        partitions = [*before, *[UNKNOWN_STATE] * (count - len(before))]
        for number, state in updates.partitions.items():
            if known is not None and state.partition_epoch < 0 and number < len(known.partitions):
                # A negative partition epoch: the controller cannot read the partition's state. Keep
                # the last known state.
                partitions[number] = known.partitions[number]
            # Ignore a state with an older partition epoch: it may have arrived late, over another
            # connection of the controller.
            if state.partition_epoch >= partitions[number].partition_epoch:
                partitions[number] = state
        if known is not None:
            return replace(known, partitions=tuple(partitions))
        configs = self._configs_of(updates.name)
        return Topic(updates.name, updates.topic_id, tuple(partitions), configs)
