"""The metadata of a broker in a cluster: who lives, and who the controller is.

Nothing else yet. The cluster's topics, settings and producer ids are the controller's, and until
klog has that, each such change is refused in a sentence.
"""

# ruff: noqa: ARG002 - what is refused does not look at what is asked for

from collections.abc import Callable, Mapping, Sequence

from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.errors import NotInClusters, UnknownTopic
from klog_broker.metadata.image import BrokerRegistration, MetadataImage, QuotaEntity, Topic
from klog_broker.metadata.interface import Done, NewTopic, OnImage, ProducerIdBlock
from klog_broker.metadata.orders import ApplyOrders
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition


class ClusterStore:
    """A `MetadataStore` whose image follows ZooKeeper: `brokers_are` and `controller_is` are called
    with what is read there, from the moment when the broker has joined the cluster."""

    def __init__(
        self,
        loop: Loop,
        cluster_id: str,
        *,
        register: Callable[[BrokerRegistration], None],
    ) -> None:
        """`register` is called with this broker's addresses, once they are known."""
        self._loop = loop
        self._image = MetadataImage(cluster_id)
        self._register = register
        self._on_image: OnImage | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest state."""
        return self._image

    @property
    def is_new(self) -> bool:
        """A cluster's metadata are never this broker's to begin."""
        return False

    # --- what is read in ZooKeeper ---------------------------------------------------------------
    def brokers_are(self, brokers: Mapping[BrokerId, BrokerRegistration]) -> None:
        """These brokers are registered."""
        if brokers != self._image.brokers:
            self._take(self._image.with_brokers(brokers))

    def controller_is(self, controller_id: BrokerId) -> None:
        """This broker is the controller; NO_BROKER while nobody is, or nobody knows."""
        if controller_id != self._image.controller_id:
            self._take(self._image.with_controller(controller_id))

    def _take(self, image: MetadataImage) -> None:
        self._image = image
        if self._on_image is not None:
            self._on_image(image, ())

    # --- at the start ----------------------------------------------------------------------------
    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """See AdoptingStore; a cluster takes nothing in, and nobody asks."""
        raise NotInClusters("a broker in a cluster takes no topics in")

    def start(self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyOrders) -> None:
        """See MetadataStore. No orders are given yet."""
        self._on_image = on_image

    def elect(self, found: Mapping[TopicPartition, FoundLog]) -> None:
        """See AdoptingStore. There are no partitions yet."""
        self._take(self._image)

    def register_broker(self, broker: BrokerRegistration) -> None:
        """See MetadataStore. The image shows the broker when ZooKeeper has it."""
        self._register(broker)

    # --- changes ---------------------------------------------------------------------------------
    def create_topics(
        self, topics: Sequence[NewTopic], done: Callable[[list[Topic | Exception]], None]
    ) -> None:
        """See MetadataStore. Refused."""
        refused: list[Topic | Exception] = [_refused("no topics are made") for _ in topics]
        self._loop.call_soon(lambda: done(refused))

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
    ) -> None:
        """See MetadataStore. There is no topic."""
        self._loop.call_soon(lambda: done(UnknownTopic(f"there is no topic {name}")))

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """See MetadataStore. There is no topic."""
        self._loop.call_soon(lambda: done(UnknownTopic(f"there is no topic {name}")))

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """See MetadataStore. Refused."""
        self._loop.call_soon(lambda: done(_refused("no settings are changed")))

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """See MetadataStore. Refused."""
        self._loop.call_soon(lambda: done(_refused("no quotas are set")))

    def delete_topic(self, topic_id: TopicId, done: Done[Topic]) -> None:
        """See MetadataStore. There is no topic."""
        self._loop.call_soon(lambda: done(UnknownTopic(f"there is no topic of id {topic_id}")))

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """See MetadataStore. Refused."""
        self._loop.call_soon(lambda: done(_refused("no producer ids are given out")))

    def close(self) -> None:
        """Nothing to do: whoever has the sessions closes them."""


def _refused(what: str) -> NotInClusters:
    return NotInClusters(
        f"{what} in a cluster over ZooKeeper yet: this release of klog registers its brokers there"
        " and elects a controller; a broker without zookeeper.connect does the rest"
    )
