"""Apache Kafka 3.9.1 in ZooKeeper mode: brokers of a cluster, to compare klog's own with.

4.x has no such mode. The ZooKeeper is the caller's (pyspark_klog.testing.zookeeper.ZooKeeper).
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence

from pyspark_klog.testing.ports import free_ports
from tests.support.peers import OLDEST_KAFKA, KafkaServer

ZOOKEEPER_SHELL = "org.apache.zookeeper.ZooKeeperMain"
SESSION_TIMEOUT_MS = 6_000


class ZooKeeperKafka(KafkaServer):
    """One broker as a process. ``zookeeper`` is ``host:port``, at will with a chroot behind it.

    A KafkaServer in all else: `shut_down`, `start_again` and `restart` keep its id, port and data.
    Its ``listeners`` say localhost, the one that brokers use 127.0.0.1; ``port`` 0 is any free one.
    After a `kill` the broker's znode stays until its session is over, and until then a broker of
    this id ends at its start.
    """

    def __init__(
        self,
        zookeeper: str,
        broker_id: int = 0,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        listeners: Mapping[str, str] | None = None,
        start_deadline_s: float = 180.0,
    ) -> None:
        super().__init__(
            OLDEST_KAFKA,
            properties=properties,
            heap_mb=heap_mb,
            listeners=listeners,
            start_deadline_s=start_deadline_s,
        )
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self._given_port = port

    def kill(self) -> None:
        """Ends the broker without warning; its data stay where they are until `stop`."""
        os.kill(self.pid, signal.SIGKILL)
        self._end_process()

    def pause(self) -> None:
        """Lets the broker stand still (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a broker that stands still go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def _start(self) -> None:
        free, *further = free_ports(1 + len(self._listeners))
        self.port = self._given_port or free
        self._listener_ports = dict(zip(self._listeners, further, strict=True))
        config = self._home / "server.properties"
        config.write_text(self._server_properties(0), encoding="utf-8")
        shutil.rmtree(self.log_dir, ignore_errors=True)
        self._launch()

    def _server_properties(self, controller_port: int) -> str:
        kraft = ("process.roles", "node.id", "controller.")
        own = {
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            **self._properties,
        }
        lines = super()._server_properties(controller_port).splitlines()
        kept = [line for line in lines if not line.startswith(kraft)]
        text = "".join(f"{line}\n" for line in kept).replace(",CONTROLLER://127.0.0.1:0", "")
        # The last line of a name counts.
        return text + "".join(f"{name}={value}\n" for name, value in own.items())


@contextlib.contextmanager
def kafka_cluster(
    zookeeper: str,
    broker_ids: Sequence[int] = (0, 1, 2),
    *,
    properties: Mapping[str, str] | None = None,
    of_broker: Mapping[int, Mapping[str, str]] | None = None,
    ports: Mapping[int, int] | None = None,
    listeners: Mapping[str, str] | None = None,
    heap_mb: int = 400,
) -> Iterator[dict[int, ZooKeeperKafka]]:
    """Brokers by id, started in this order: the first one is the controller.

    ``properties`` are for all of them, ``of_broker`` for one.
    """
    with contextlib.ExitStack() as stack:
        yield {
            each: stack.enter_context(
                ZooKeeperKafka(
                    zookeeper,
                    each,
                    port=(ports or {}).get(each, 0),
                    properties={**(properties or {}), **(of_broker or {}).get(each, {})},
                    heap_mb=heap_mb,
                    listeners=listeners,
                )
            )
            for each in broker_ids
        }
