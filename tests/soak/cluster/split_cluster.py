"""A cluster whose connections, between brokers and to ZooKeeper, can be cut (`ways`)."""

from pathlib import Path

from pyspark_klog.testing import Broker, KlogCluster
from pyspark_klog.testing.ports import free_ports
from tests.soak.cluster.proxies import ZOOKEEPER, Ways

_PATIENCE_S = 180.0
"""A long timeout, because test machines are sometimes busy and a slow start is a problem."""


class SplitCluster(KlogCluster):
    """Clients reach broker N at 127.0.0.N; brokers reach each other and ZooKeeper by `ways`."""

    def __init__(self, data: Path, brokers: int = 3, **settings: str | int | bool) -> None:
        """Create the cluster. The brokers' folders are below ``data``, and stay."""
        self.ways = Ways()
        self._folder = data
        super().__init__(brokers, start_timeout_s=_PATIENCE_S, **settings)

    def __enter__(self) -> "SplitCluster":
        self.start()
        return self

    def data_of(self, number: int) -> Path:
        """The data folder of a broker."""
        return self._folder / f"broker-{number}"

    def close(self) -> None:
        """Restore all connections, then stop brokers, ZooKeeper and proxies."""
        # A broker that is cut off could not stop cleanly.
        self.ways.heal()
        super().close()
        self.ways.close()

    def _make(self, number: int) -> Broker:
        host = f"127.0.0.{number}"
        port, inner_port = free_ports(2, host)
        zookeeper_host, _, zookeeper_port = self.zookeeper.address.partition(":")
        zookeeper = self.ways.to(ZOOKEEPER, (zookeeper_host, int(zookeeper_port)), number)
        inner = self.ways.to(number, (host, inner_port))
        settings: dict[str, str | int | bool] = {
            "broker_id": number,
            "listeners": f"PLAINTEXT://{host}:{port},INNER://{host}:{inner_port}",
            "advertised_listeners": f"PLAINTEXT://{host}:{port},INNER://127.0.0.1:{inner}",
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
            "inter_broker_listener_name": "INNER",
            "zookeeper_connect": f"127.0.0.1:{zookeeper}",
            "controlled_shutdown_retry_backoff_ms": 200,
        }
        return Broker(
            data=self.data_of(number),
            port=port,
            start_timeout_s=_PATIENCE_S,
            stop_timeout_s=_PATIENCE_S,
            **(settings | self._settings),
        )
