"""Has a broker in a cluster copy what the leaders of its replicas have."""

from klog_broker.config import BrokerConfig
from klog_broker.handlers.context import BrokerServices
from klog_broker.replication.fetch_requests import FetcherSettings, WhoAsks
from klog_broker.replication.fetchers import Fetchers
from pyspark_klog.ids import BrokerId


def follow_leaders(broker: BrokerServices) -> None:
    """From now on each partition that follows is fetched. The broker must be in a cluster."""
    listener, peers = broker.config.inter_broker_listener, broker.peers
    assert peers is not None

    def address_of(leader: BrokerId) -> tuple[str, int] | None:
        registered = broker.metadata.image.brokers.get(leader)
        endpoint = registered and registered.endpoint(listener)
        return (endpoint.host, endpoint.port) if endpoint else None

    fetchers = Fetchers(
        broker.replicas,
        WhoAsks(broker.broker_id, broker.broker_epoch),
        _settings(broker.config),
        address_of=address_of,
        connect=peers.connect,
        loop=broker.loop,
        clock=broker.clock,
        slices=broker.slices,
    )
    broker.fetchers = fetchers
    broker.on_image.append(fetchers.brokers_changed)
    broker.on_close.append(fetchers.close)


def _settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        fetch_max_bytes=config["replica.fetch.max.bytes"],
        response_max_bytes=config["replica.fetch.response.max.bytes"],
        min_bytes=config["replica.fetch.min.bytes"],
        wait_max_ms=config["replica.fetch.wait.max.ms"],
        backoff_ms=config["replica.fetch.backoff.ms"],
        timeout_ms=config["replica.socket.timeout.ms"],
    )
