"""What a metadata store promises. `local.LocalStore` keeps it in a file; ZooKeeper's comes later.

Everything here belongs to the loop's thread and nothing blocks. A change is asked for and `done` is
called later, once, in the loop: with the outcome when the change is durable, `image` shows it and
the orders that it led to have been answered; with an exception when nothing has changed. Changes
are made one after the other, each from what the ones before it left.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from klog_broker.metadata.image import BrokerRegistration, MetadataImage, Topic
from klog_broker.metadata.orders import ApplyOrders
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from pyspark_klog.ids import BrokerId, ProducerId, TopicId

PRODUCER_ID_BLOCK_SIZE = 1000

T = TypeVar("T")
Done = Callable[[T | Exception], None]

OnImage = Callable[[MetadataImage, Sequence[str]], None]
"""Called with each new image, before the orders that come with it, and with the names of the topics
that came, went, or have other settings."""


class ProducerIdBlock(NamedTuple):
    """Producer ids that nobody else will get: `first` up to, not including, `end`."""

    first: ProducerId
    end: ProducerId


class NewTopic(NamedTuple):
    """A topic to be created: the replicas of each partition, and the settings given for it.

    The first replica leads. The topic gets an id that is made up unless one is given.
    """

    name: str
    assignment: tuple[tuple[BrokerId, ...], ...]
    configs: Mapping[str, str]
    topic_id: TopicId | None = None


class MetadataStore(Protocol):
    """The one place that knows the cluster's topics, settings, brokers and producer ids."""

    @property
    def image(self) -> MetadataImage:
        """The newest durable state. It never changes, it is replaced."""

    def start(self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyOrders) -> None:
        """Say what the store works with, and whom it tells: first of all, once."""

    def register_broker(self, broker: BrokerRegistration) -> None:
        """Make this broker known, or its addresses anew. It is forgotten when the store closes."""

    def create_topics(
        self, topics: Sequence[NewTopic], done: Callable[[list[Topic | Exception]], None]
    ) -> None:
        """Add topics, each by itself: `done` gets for each of them the topic, or its error.

        InvalidTopicName (also for one that differs from another topic's in ``.`` and ``_`` only),
        TopicExists (also while a topic of that name is being deleted). What cannot be carried out
        for a partition is the topic's error, and the topic is deleted again.
        """

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
    ) -> None:
        """Add partitions from `first_partition` on, which comes right behind the topic's last one.

        UnknownTopic; PartitionsChanged if somebody else was faster. What cannot be carried out for
        a partition comes out; the partitions are there all the same, and it is tried again.
        """

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """Replace a topic's settings by what `update` makes of them; nobody can come in between.

        What `update` raises comes out and nothing has changed. UnknownTopic.
        """

    def delete_topic(self, topic_id: TopicId, done: Done[Topic]) -> None:
        """Delete a topic in two durable steps. UnknownTopic.

        After the first one clients no longer see it and its logs are set aside; its name is free
        after the second. What cannot be carried out comes out, the name stays taken, and the next
        start finishes it.
        """

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """A fresh block; its end is durable before the first id can be handed out."""

    def close(self) -> None:
        """Let go of files and connections. What has not been answered may be lost."""
