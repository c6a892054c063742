"""What a metadata store promises. `local.LocalStore` keeps it in a file; ZooKeeper's comes later.

Every method that changes something **blocks until the change is durable** and only then shows it in
`image`: call it in a helper thread, never in the loop. A method that raises has changed nothing.
Methods may be called from any thread; the store lets them in one at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from klog_broker.metadata.image import Broker, MetadataImage, Topic
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, ProducerId, TopicId

PRODUCER_ID_BLOCK_SIZE = 1000


class ProducerIdBlock(NamedTuple):
    """Producer ids that nobody else will get: `first` up to, not including, `end`."""

    first: ProducerId
    end: ProducerId


class NewTopic(NamedTuple):
    """A topic to be created: the replicas of each partition, and the settings given for it."""

    name: str
    assignment: tuple[tuple[BrokerId, ...], ...]
    configs: dict[str, str]


class MetadataStore(Protocol):
    """The one place that knows the cluster's topics, settings, brokers and producer ids."""

    @property
    def image(self) -> MetadataImage:
        """The newest durable state. Reading it never blocks; it never changes, it is replaced."""

    def register_broker(self, broker: Broker) -> None:
        """Make this broker known, or its addresses anew. It is forgotten when the store closes."""

    def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[BrokerId]],
        configs: Mapping[str, str],
        topic_id: TopicId | None = None,
    ) -> Topic:
        """Add a topic with these replicas for each partition; it gets a new id unless one is given.

        The first replica leads. InvalidTopicName (also for one that differs from another topic's
        in ``.`` and ``_`` only), or TopicExists (also while a topic of that name is being deleted).
        """

    def create_topics(self, topics: Sequence[NewTopic]) -> list[Topic | KlogError]:
        """As ``create_topic``, with one write for all: of each the topic, or its error."""

    def create_partitions(
        self, name: str, first_partition: int, assignment: Sequence[Sequence[BrokerId]]
    ) -> Topic:
        """Add partitions from `first_partition` on, which comes right behind the topic's last one.

        UnknownTopic; PartitionsChanged if somebody else was faster.
        """

    def update_topic_configs(
        self, name: str, update: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Topic:
        """Replace a topic's settings by what `update` makes of them; nobody can come in between.

        What `update` raises comes out and nothing has changed. It may be called more than once.
        UnknownTopic.
        """

    def begin_topic_deletion(self, topic_id: TopicId) -> Topic:
        """First of two steps: clients no longer see the topic, its name stays taken. UnknownTopic.

        Then the caller sets the topic's logs aside, and calls `finish_topic_deletion`. What a crash
        leaves between the two stands in ``image.deleting`` at the next start.
        """

    def finish_topic_deletion(self, topic_id: TopicId) -> None:
        """Second step: forget the topic. Its name is free. Nothing happens if that was done."""

    def allocate_producer_ids(self) -> ProducerIdBlock:
        """A fresh block; its end is durable before the first id can be handed out."""

    def close(self) -> None:
        """Let go of files and connections. Nothing is lost without it."""
