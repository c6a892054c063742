"""The contract of a metadata store. `local.LocalStore` is the store that keeps metadata in a file.

Call all methods in the event loop's thread; none blocks unless its docstring says so. A method that
requests a change calls `done` once, later, in the loop. `done` gets the outcome when the change is
durable, `image` shows the change, and the role changes that follow from it (to lead, follow or
delete replicas) have been applied. `done` gets an exception if the change was refused or has
failed. Changes of the same topic or settings are made one after the other, each on the state that
the earlier changes left.

A store that waits for other brokers gives up after a change's `timeout_ms`: `done` then gets
NoResponse, and the change may still be made. Such a store waits until new partitions have leaders,
but neither for the deletion of a deleted topic's logs nor for the role changes of other brokers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from klog_broker.metadata.image import BrokerRegistration, MetadataImage, QuotaEntity, Topic
from klog_broker.metadata.role_changes import ApplyRoleChanges
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import BrokerId, ProducerId, TopicId

PRODUCER_ID_BLOCK_SIZE = 1000
CHANGE_TIMEOUT_MS = 60_000
"""The default timeout of a change: Kafka's clients wait as long by default."""

T = TypeVar("T")
Done = Callable[[T | Exception], None]

OnImage = Callable[[MetadataImage, Sequence[str]], None]
"""Called with each new image, before the role changes that follow from the image (to lead, follow,
stop or delete replicas) are applied. The second argument has the names of topics that were added or
removed, or whose settings changed."""


class ProducerIdBlock(NamedTuple):
    """Producer ids that are allocated only once: `first` up to, not including, `end`."""

    first: ProducerId
    end: ProducerId


class NewTopic(NamedTuple):
    """A topic to be created: the replicas of each partition, and the topic's settings.

    Each partition's first live replica leads. Without `topic_id` the topic gets a random id.
    """

    name: str
    assignment: tuple[tuple[BrokerId, ...], ...]
    configs: Mapping[str, str]
    topic_id: TopicId | None = None


class MetadataStore(Protocol):
    """Stores the cluster's topics, settings, brokers and producer ids."""

    @property
    def image(self) -> MetadataImage:
        """The newest durable state of the metadata. An image never changes; each change makes a new
        image."""

    @property
    def is_standalone(self) -> bool:
        """Whether this broker is the only one of its cluster, so that it hosts every replica."""

    @property
    def has_failed(self) -> bool:
        """Whether no change of the metadata can be stored until the broker restarts."""

    def deleting_topics(self) -> Collection[str]:
        """Return the names of the topics whose deletion is not finished, as far as this broker
        knows: in a cluster only the controller does."""

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings set for a topic; empty if there is no topic named `name`."""

    def start(
        self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyRoleChanges
    ) -> None:
        """Give the store the loop, its helper threads and its callbacks. Call this once, before any
        change is requested. `on_image` gets each new image; `apply` gets the role changes: to
        lead, follow, stop or delete replicas."""

    def register_broker(self, broker: BrokerRegistration) -> None:
        """Register this broker with its addresses, or change its addresses. The registration lasts
        until the broker stops."""

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> None:
        """Create topics independently of each other: `done` gets a topic or an error for each.

        Errors: InvalidTopicName (also for a name that differs from another topic's in ``.`` and
        ``_`` only), TopicExists (also while a topic of that name is being deleted). If a
        standalone broker cannot create a partition's log, the topic's outcome is that error, and
        the topic is deleted again, unless it is internal.
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

        Errors: UnknownTopic; PartitionsChanged if the topic has another number of partitions by
        now. If a new partition gets no leader, for example because its log cannot be created,
        `done` gets that error. The partitions stay, and the creation of the log is tried again
        later.
        """

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """Replace a topic's settings by the result of `update(settings)`. No other change of these
        settings is made between the call of `update` and the replacement; `update` may be called
        several times. Errors: UnknownTopic, the error that `update` raises, and others.
        """

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """Replace the dynamic settings of `name`, which is a broker's id as text, or ALL_BROKERS.
        `update` gets the dynamic settings of all names, and returns the new settings of `name`. No
        other change of the settings of `name` is made between the call of `update` and the
        replacement; `update` may be called several times. Errors: the error that `update` raises,
        and others.
        """

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """Set quotas, and remove each quota whose value is None. Errors: TooManyQuotas."""

    def delete_topic(
        self, topic_id: TopicId, done: Done[Topic], *, timeout_ms: int = CHANGE_TIMEOUT_MS
    ) -> None:
        """Delete a topic in two durable steps. Errors: UnknownTopic.

        After the first step clients no longer see the topic, and its logs are renamed for deletion.
        After the second step the topic's name is free. If a standalone broker cannot remove a log,
        `done` gets that error, the name stays taken, and the broker's next start finishes the
        deletion.
        """

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """Allocate a new block of producer ids. The block's end is durable before `done` gets the
        block, so that no id is allocated twice."""

    def close(self) -> None:
        """Close files and connections. Requested changes whose `done` was not called yet may be
        lost."""
