"""The parts of a broker that the handler of Fetch uses."""

from __future__ import annotations

from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.fetch.awaited_followers import AwaitedFollowers
from klog_broker.fetch.down_conversion import DownConversions
from klog_broker.fetch.follower_fetch import FollowerRefusal
from klog_broker.fetch.sessions import FetchSessions
from klog_broker.resources.leader_holders import LeaderHolders
from klog_broker.resources.led_partitions import PartitionServices
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.threads.helpers import Helpers


class FetchServices(PartitionServices, Protocol):
    """The parts of a broker that the handler of Fetch uses."""

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
