"""What a metadata store promises. `local.LocalStore` is the store that keeps metadata in a file.

All methods are for the loop's thread, and none blocks unless its text says so. A change is asked
for, and `done` is called once, later, in the loop. It gets the outcome when the change is durable,
`image` shows it, and the orders that follow from it have been answered; it gets an exception if the
change was refused. Changes are made one after the other, each on the state that the earlier ones
left. A store that waits for other brokers gives up after a change's `timeout_ms`: `done` gets
NoAnswer then, and the change may still be made. It does not wait for the logs of a topic that is
deleted, nor for anybody else's orders: leaders are what it waits for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from klog_broker.metadata.image import BrokerRegistration, MetadataImage, QuotaEntity, Topic
from klog_broker.metadata.role_changes import ApplyRoleChanges
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import BrokerId, ProducerId, TopicId

PRODUCER_ID_BLOCK_SIZE = 1000
CHANGE_TIMEOUT_MS = 60_000
"""As clients of Kafka wait for a change if they are not told otherwise."""

T = TypeVar("T")
Done = Callable[[T | Exception], None]

OnImage = Callable[[MetadataImage, Sequence[str]], None]
"""Called with each new image, before the orders that come with it, and with the names of topics
that were added, removed, or got other settings."""


class ProducerIdBlock(NamedTuple):
    """Producer ids that nobody else will get: `first` up to, not including, `end`."""

    first: ProducerId
    end: ProducerId


class NewTopic(NamedTuple):
    """A topic to be created: the replicas of each partition, and the settings given for it.

    The first replica leads. Without `topic_id` the topic gets a random id.
    """

    name: str
    assignment: tuple[tuple[BrokerId, ...], ...]
    configs: Mapping[str, str]
    topic_id: TopicId | None = None


class MetadataStore(Protocol):
    """The one place that knows the cluster's topics, settings, brokers and producer ids."""

    @property
    def image(self) -> MetadataImage:
        """The newest durable state. An image never changes; each change makes a new one."""

    @property
    def is_standalone(self) -> bool:
        """Whether this broker is the only one of its cluster, so that it hosts every replica."""

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The settings given for a topic; none if there is no topic of that name."""

    def start(
        self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyRoleChanges
    ) -> None:
        """Give the store what it works with and whom it calls: once, before any other call."""

    def register_broker(self, broker: BrokerRegistration) -> None:
        """Register this broker with its addresses, or change these. It is forgotten at `close`."""

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        """Add topics, each by itself: for each of them `done` gets the topic, or its error.

        Errors: InvalidTopicName (also for a name that differs from another topic's in ``.`` and
        ``_`` only), TopicExists (also while a topic of that name is being deleted). An order that
        fails for a partition is the topic's error, and the topic is deleted again.
        """

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        """Add partitions from `first_partition` on, the number after the topic's last partition.

        Errors: UnknownTopic; PartitionsChanged if somebody else added partitions meanwhile. If an
        order fails for a partition, `done` gets that error; the partitions stay, and the order is
        given again later.
        """

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """Replace a topic's settings by the result of `update(settings)`; no other change can come
        in between. Errors: UnknownTopic, or the error that `update` raises.
        """

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """Replace the settings that are given while it runs to a broker, by its id as text, or to
        ALL_BROKERS. `update` gets those of all names, and makes the new ones of `name`; no other
        change can come in between. Errors: the error that `update` raises.
        """

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """Set quotas, and remove those that are None. Errors: TooManyQuotas."""

    def delete_topic(
        self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int = CHANGE_TIMEOUT_MS
    ) -> None:
        """Delete a topic in two durable steps. Errors: UnknownTopic.

        After the first step clients no longer see the topic, and its logs are set aside; after the
        second its name is free. If an order fails, `done` gets that error, the name stays taken,
        and the broker's next start finishes the deletion.
        """

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """Allocate a fresh block; its end is durable before `done` gets the block."""

    def close(self) -> None:
        """Let go of files and connections. Changes that have not been answered may be lost."""
