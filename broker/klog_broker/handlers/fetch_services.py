"""The services of Fetch."""

from __future__ import annotations

from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.handlers.awaited_followers import AwaitedFollowers
from klog_broker.handlers.fetch_convert import DownConversions
from klog_broker.handlers.fetch_replicas import FollowerRefusal
from klog_broker.handlers.fetch_sessions import FetchSessions
from klog_broker.handlers.leader_holders import LeaderHolders
from klog_broker.handlers.partitions import PartitionServices
from klog_broker.handlers.request_runtime import RequestRuntime
from klog_broker.runtime.helpers import Helpers
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.purgatory import Purgatory


class FetchServices(PartitionServices, Protocol):
    """The services of Fetch."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def helpers(self) -> Helpers: ...

    @property
    def requests(self) -> RequestRuntime: ...

    @property
    def fetch_sessions(self) -> FetchSessions: ...

    @property
    def conversions(self) -> DownConversions: ...

    @property
    def awaited_followers(self) -> AwaitedFollowers: ...

    @property
    def leader_holders(self) -> LeaderHolders: ...

    @property
    def follower_refusal(self) -> FollowerRefusal: ...
