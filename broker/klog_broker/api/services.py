"""The services of APIs (the broker's objects that their handlers use): a Protocol for each of
several families of APIs, whose handlers use the same objects."""

from __future__ import annotations

from typing import Protocol

from klog_broker.cluster.known_topics import KnownTopics, NewTopicSettings
from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.cluster.topic_requests import ControllerServices
from klog_broker.config import BrokerConfig
from klog_broker.coordinator.group.coordinator import GroupCoordinator
from klog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from klog_broker.coordinator_hosting.marker_writer import MarkerServices
from klog_broker.coordinator_hosting.state_topics import CoordinatorFinder
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.fetch.services import FetchServices
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.interface import MetadataStore
from klog_broker.produce.services import ProduceServices, VerifyTransactions
from klog_broker.resources.authorizer import AuthorizerServices
from klog_broker.resources.led_partitions import PartitionServices
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from klog_broker.topics.services import TopicServices
from pyspark_klog.ids import BrokerId


class LogServices(PartitionServices, Protocol):
    """The broker's objects that the handlers of the APIs about logs use: the APIs for offsets,
    deletions, producers and log directories."""

    @property
    def clock(self) -> Clock: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def logs(self) -> LogManager: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def requests(self) -> RequestRuntime: ...


class GroupServices(AuthorizerServices, Protocol):
    """The broker's objects that the handlers of the APIs of consumer groups use."""

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def known_topics(self) -> KnownTopics: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def requests(self) -> RequestRuntime: ...


class FindCoordinatorServices(AuthorizerServices, Protocol):
    """The broker's objects that the handler of FindCoordinator uses."""

    @property
    def group_finder(self) -> CoordinatorFinder: ...

    @property
    def transaction_finder(self) -> CoordinatorFinder: ...


class TransactionServices(MarkerServices, Protocol):
    """The broker's objects that the handlers of InitProducerId and of the APIs about transactions
    use."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def group_finder(self) -> CoordinatorFinder: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def transactions(self) -> TransactionCoordinator: ...

    @property
    def verify_transactions(self) -> VerifyTransactions: ...


class BrokerIdServices(Protocol):
    """The id of this broker, for the handlers of APIs that need the id."""

    @property
    def broker_id(self) -> BrokerId: ...


class TopicsServices(
    TopicServices, ControllerServices, BrokerIdServices, AuthorizerServices, Protocol
):
    """The broker's objects that handlers use to create, change, delete and describe topics, or to
    describe the cluster."""


class SettingsServices(TopicServices, BrokerIdServices, AuthorizerServices, Protocol):
    """The broker's objects that handlers use to show and alter settings and quotas."""

    @property
    def known_topics(self) -> KnownTopics: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def new_topic_settings(self) -> NewTopicSettings: ...


class AllServices(
    FetchServices,
    FindCoordinatorServices,
    GroupServices,
    LogServices,
    ProduceServices,
    SettingsServices,
    TopicsServices,
    TransactionServices,
    Protocol,
):
    """All objects that every broker has for the handlers of its APIs."""
