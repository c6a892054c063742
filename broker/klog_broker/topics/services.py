"""The interface of a broker for the functions in `klog_broker.topics`: the parts they call."""

from collections.abc import Callable, Sequence
from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.interface import MetadataStore
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.helpers import Helpers


class TopicServices(Protocol):
    """The parts of a broker that the functions in `topics` call to change topics."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def logs(self) -> LogManager: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def chance(self) -> Chance: ...

    @property
    def on_topic_deleted(self) -> Sequence[Callable[[str], None]]:
        """Callbacks for deleted topics: each is called with the name of every topic that a new
        metadata image no longer has."""

    @property
    def folder_warnings(self) -> RateLimit:
        """The rate limit for the warning that partitions of a topic cannot be created, because a
        folder with the name of one of them does not belong to the topic. Clients may try to create
        such partitions again and again."""
