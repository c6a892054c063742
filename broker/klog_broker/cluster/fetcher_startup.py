"""Starts the fetchers, by which a broker's followers copy records from their leaders."""

from collections.abc import Callable
from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.metadata.interface import MetadataStore
from klog_broker.replication.fetch_requests import FetcherSettings, FollowerIdentity
from klog_broker.replication.fetchers import Fetchers
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.peers import Peers
from klog_broker.runtime.system.clock import Clock
from pyspark_klog.ids import BrokerId


class FollowingServices(Protocol):
    """The broker's objects that the fetchers use, which copy records from leaders."""

    @property
    def broker_epoch(self) -> Callable[[], int]: ...

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def on_close(self) -> list[Callable[[], None]]: ...

    @property
    def on_image(self) -> list[Callable[[], None]]: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def requests(self) -> RequestRuntime: ...


def start_fetchers(services: FollowingServices, peers: Peers) -> Fetchers:
    """Start fetching all partitions that this broker follows, over connections to the leaders."""
    listener = services.config.inter_broker_listener

    def address_of(leader: BrokerId) -> tuple[str, int] | None:
        registered = services.metadata.image.brokers.get(leader)
        endpoint = registered and registered.endpoint(listener)
        return (endpoint.host, endpoint.port) if endpoint else None

    fetchers = Fetchers(
        services.replicas,
        FollowerIdentity(services.broker_id, services.broker_epoch),
        _settings(services.config),
        address_of=address_of,
        connect=peers.connect,
        loop=services.loop,
        clock=services.clock,
        slices=services.requests.slices,
    )
    services.on_image.append(fetchers.brokers_changed)
    services.on_close.append(fetchers.close)
    return fetchers


def _settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        fetch_max_bytes=config["replica.fetch.max.bytes"],
        response_max_bytes=config["replica.fetch.response.max.bytes"],
        min_bytes=config["replica.fetch.min.bytes"],
        wait_max_ms=config["replica.fetch.wait.max.ms"],
        backoff_ms=config["replica.fetch.backoff.ms"],
        timeout_ms=config["replica.socket.timeout.ms"],
    )
