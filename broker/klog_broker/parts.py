"""The parts of one broker that serve requests.

app.py creates the parts once the logs are loaded. The handlers of a family of APIs (such as those
about consumer groups) use only the parts that the family's Protocol in api/services.py names.
"""

from __future__ import annotations

from collections.abc import Callable

from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.config import BrokerConfig
from klog_broker.coordinator_hosting.groups import new_groups
from klog_broker.coordinator_hosting.state_topics import AdvertisedAddress, CoordinatorFinder
from klog_broker.dispatch.authorizer import Authorizer
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.fetch.awaited_followers import AwaitedFollowers
from klog_broker.fetch.down_conversion import DownConversions
from klog_broker.fetch.sessions import FetchSessions
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.membership.cluster_lifecycle import ClusterParts
from klog_broker.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog_broker.metadata.interface import MetadataStore
from klog_broker.metrics.in_sync_counts import InSyncCounts
from klog_broker.produce.pipeline import ProducePipeline
from klog_broker.produce.services import ProduceAppends, VerifyTransactions
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.resources.leader_holders import LeaderHolders
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.event_loop.slices import Slices
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.helpers import Helpers
from klog_broker.security.principal_numbers import PrincipalNumbers
from pyspark_klog.ids import BrokerId


class BrokerParts:
    """The parts of one broker. All of them exist when the constructor returns.

    ``prepare_kernels`` loads the compiled kernels. fetch/down_conversion.py calls it once, in a
    helper thread, before it first converts records for an old version of Fetch.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: BrokerId,
        side: ClusterParts,
        *,
        clock: Clock,
        chance: Chance,
        loop: Loop,
        purgatory: Purgatory,
        helpers: Helpers,
        logs: LogManager,
        replicas: ReplicaManager,
        metadata: MetadataStore,
        producer_ids: ProducerIds,
        prepare_kernels: Callable[[], None],
        authorizer: Authorizer,
    ) -> None:
        self.config = config
        """The settings in force: when a client changes a setting, ``SettingsInForce``
        (lifecycle/settings_in_force.py) replaces this object."""
        self.broker_id = broker_id
        self.authorizer = authorizer
        self.principal_numbers = PrincipalNumbers()
        self.cluster_id = metadata.image.cluster_id
        self.clock = clock
        self.chance = chance
        self.loop = loop
        self.purgatory = purgatory
        self.helpers = helpers
        self.logs = logs
        self.replicas = replicas
        self.metadata = metadata
        self.producer_ids = producer_ids
        self.slices = Slices(loop)
        self.requests = RequestRuntime(self.slices)
        self.conversions = DownConversions(loop, helpers, prepare_kernels)
        self.fetch_sessions = FetchSessions(
            loop, purgatory, chance, config["max.incremental.fetch.session.cache.slots"]
        )
        self.awaited_followers = AwaitedFollowers(loop, purgatory)
        self.leader_holders = LeaderHolders()
        """The objects that keep references to `Leader` objects (this broker's leaderships of
        partitions) between requests, such as cached fetches. When any leadership ends, all of them
        drop their references."""
        self.folder_warnings = RateLimit()
        """The rate limit of the warning that a folder in a data directory, which has the name of
        one of a topic's partitions but does not belong to the topic, prevents the creation of the
        topic: clients request the topic again and again."""
        self.in_sync_counts = InSyncCounts()
        self.advertised: dict[str, AdvertisedAddress] = {}
        """The address that FindCoordinator returns, by listener name. Empty until the listeners
        have their ports."""
        self.on_topic_deleted: list[Callable[[str], None]] = []
        """Callbacks, called with a topic's name when a new metadata image (the snapshot of topics
        and partitions) no longer has the topic. Its logs may not be deleted yet."""
        self.on_image: list[Callable[[], None]] = []
        """Callbacks, called after each change of the metadata image (the snapshot of topics,
        partitions and brokers from which clients are answered)."""
        self.on_close: list[Callable[[], None]] = []
        """Callbacks, called when the broker stops and accepts no more requests."""

        self.broker_epoch = side.broker_epoch
        """Returns this broker's epoch; -1 while it is not registered, and for a standalone
        broker."""
        self.follower_refusal = side.follower_refusal
        self.known_topics = side.known_topics
        self.new_topic_settings = side.new_topic_settings
        self.other_controller = side.other_controller

        # The coordinators and other services created below get this BrokerParts object and use its
        # attributes set above, so they are created last.
        self.produce: ProduceAppends = ProducePipeline(self)
        self.groups = new_groups(self)
        transactions = side.new_transactions(self)
        self.transactions = transactions.coordinator
        self.verify_transactions: VerifyTransactions = transactions.verify
        self.verifies_elsewhere = transactions.verifies_elsewhere
        self.group_finder = CoordinatorFinder(
            self, CONSUMER_OFFSETS, lambda group_id: self.groups.serving_error(group_id)
        )
        self.transaction_finder = CoordinatorFinder(
            self,
            TRANSACTION_STATE,
            lambda transactional_id: self.transactions.serving_error(transactional_id),
        )
