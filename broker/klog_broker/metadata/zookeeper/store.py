"""The metadata of a broker in a cluster: what it sees of the cluster, and what it asks to change.

Changes of topics, settings and producer ids are refused in a sentence each, until they are asked
of the controller.
"""

# ruff: noqa: ARG002 - what is refused does not look at what is asked for

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.errors import NotInClusters, UnknownTopic
from klog_broker.metadata.image import BrokerRegistration, MetadataImage, QuotaEntity, Topic
from klog_broker.metadata.interface import Done, NewTopic, OnImage, ProducerIdBlock
from klog_broker.metadata.orders import ApplyOrders
from klog_broker.metadata.zookeeper.view import ClusterView
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition


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
        self._loop = loop
        self._register = register

    @property
    def image(self) -> MetadataImage:
        """The newest state."""
        return self.view.image

    @property
    def is_new(self) -> bool:
        """A cluster's metadata are never this broker's to begin."""
        return False

    # --- settings of topics ----------------------------------------------------------------------
    def topic_configs(self, _name: str) -> Mapping[str, str]:
        """The settings given for a topic, also before the image shows it."""
        return MappingProxyType({})

    def learn_topics(self, names: Sequence[str], done: Callable[[], None]) -> None:
        """`done` once the settings of these topics are known. Waits for ZooKeeper if need be."""
        done()

    # --- at the start ----------------------------------------------------------------------------
    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """See AdoptingStore; a cluster takes nothing in, and nobody asks."""
        raise NotInClusters("a broker in a cluster takes no topics in")

    def start(self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyOrders) -> None:
        """See MetadataStore. The orders are a controller's, and do not come through here."""
        self.view.on_image = on_image

    def elect(self, found: Mapping[TopicPartition, FoundLog]) -> None:
        """See AdoptingStore. Orders give replicas their roles; until then they have none."""
        self.view.take(self.image)

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
