"""Brokers and a ZooKeeper as child processes, on loopback, each broker on its own address."""

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark_klog.client.admin.topics import Admin
from pyspark_klog.client.cluster.metadata import ClusterView
from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.testing.broker import Broker, BrokerFailed
from pyspark_klog.testing.faults import Fault, FaultFailed
from pyspark_klog.testing.ports import free_port
from pyspark_klog.testing.zookeeper import ZooKeeper

_MOST_BROKERS = 250
_PAUSE_S = 0.02
# Kafka's default replication factor of __consumer_offsets and __transaction_state. A topic cannot
# have more replicas than there are brokers, so a smaller cluster gets a lower replication factor.
_INTERNAL_REPLICAS = 3


class KlogCluster:
    """A cluster to test against; use it in a with statement, or call `start` and `close`.

    Broker N, from 1 on, listens on 127.0.0.N. Linux has these addresses; macOS needs a command for
    each: ``ifconfig lo0 alias 127.0.0.2``. `brokers` are `Broker`s, so that a test can stop, kill
    and start each; `zookeeper` is a `ZooKeeper`. Settings are the brokers' own, with underscores
    for dots. All child processes end with the process that started them. ZooKeeper needs Java, and
    the jars of pyspark or of a Spark at SPARK_HOME.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data: Path | str | None = None,
        ports: int = 0,
        start_timeout_s: float = 60.0,
        python: Sequence[str] | None = None,
        **settings: str | int | bool,
    ) -> None:
        """The data folders are temporary, or below ``data`` if it is given. All brokers listen on
        the port ``ports``; with 0 each listens on a free port."""
        if not 1 <= brokers <= _MOST_BROKERS:
            raise ValueError(f"a cluster has 1 to {_MOST_BROKERS} brokers, not {brokers}")
        folder = None if data is None else Path(data)
        self.zookeeper = ZooKeeper(
            data=None if folder is None else folder / "zookeeper",
            start_timeout_s=start_timeout_s,
        )
        self.brokers: tuple[Broker, ...] = ()
        self._count = brokers
        self._data = folder
        self._ports = ports
        self._start_timeout_s = start_timeout_s
        self._python = python
        self._settings = settings

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, separated by commas, for ``bootstrap.servers``."""
        return ",".join(each.bootstrap_servers for each in self.brokers)

    def broker(self, broker_id: int) -> Broker:
        """Return the broker whose id is ``broker_id``; the first one has the id 1.

        :raises ValueError: if there is no such broker
        """
        if not 1 <= broker_id <= len(self.brokers):
            there = f"1 to {len(self.brokers)}" if self.brokers else "none before its start"
            raise ValueError(f"there is no broker {broker_id}; the cluster has {there}")
        return self.brokers[broker_id - 1]

    def __enter__(self) -> "KlogCluster":
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start ZooKeeper, then the brokers, and wait until each broker's metadata lists all of
        them.

        :raises ZooKeeperFailed: if ZooKeeper does not start
        :raises BrokerFailed: if a broker does not start, or does not see all brokers in time
        """
        try:
            self.zookeeper.start()
            made = []
            for number in range(1, self._count + 1):
                made.append(self._make(number))
                self.brokers = tuple(made)
                made[-1].start()
            self._wait_for_full_metadata()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the brokers, then ZooKeeper, and remove the temporary folders."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.zookeeper.close)
            for each in self.brokers:
                stack.callback(each.close)
            for each in self.brokers:
                # Stop all brokers at the same time. One after the other, each would first hand its
                # partitions to a broker that is still running, which takes longer.
                if each.is_running:
                    # A broker that is cut off could not hand its partitions to another broker.
                    each._resume_if_paused()
                    each.faults._settle()
                    os.kill(each.pid, signal.SIGTERM)

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make a broker the leader of a partition, and wait until all running brokers know it.

        :raises FaultFailed: if the broker is not an in-sync replica of the partition, or if the
            cluster has no controller
        :raises BrokerFailed: if a broker does not learn of the new leader in time
        """
        running = [each for each in self.brokers if each.is_running]
        with Admin(running[0].bootstrap_servers) as admin:
            controller_id = admin.describe_cluster().controller_id
        if controller_id < 0:
            raise FaultFailed("the cluster has no controller at the moment")
        self.broker(controller_id).faults._move_leader(topic, partition, broker_id)
        deadline_s = time.monotonic() + self._start_timeout_s
        for broker in running:
            with Admin(broker.bootstrap_servers) as admin:
                while _leader(admin, topic, partition) != broker_id:
                    if time.monotonic() > deadline_s:
                        raise BrokerFailed(
                            f"the broker at {broker.bootstrap_servers} did not learn of the leader"
                            f" {broker_id} of {topic}-{partition} in time"
                        )
                    time.sleep(_PAUSE_S)

    def partition(self, broker_id: int) -> Fault:
        """Cut a broker off from ZooKeeper and from the other running brokers, until the fault ends.
        Clients still reach the broker, which does not learn that other brokers lead.

        :raises FaultFailed: if the broker or another one does not run, or is paused
        """
        alone = self.broker(broker_id)
        return alone.faults._cut_off(
            each.faults for each in self.brokers if each.is_running and each is not alone
        )

    def _wait_for_full_metadata(self) -> None:
        """Wait until the metadata of each broker lists all brokers. Until then, the cluster might
        refuse to create a topic with as many replicas as there are brokers."""
        deadline_s = time.monotonic() + self._start_timeout_s
        numbers = set(range(1, self._count + 1))
        for broker in self.brokers:
            seen: ClusterView | None = None
            while seen is None or seen.brokers.keys() != numbers or seen.controller_id < 0:
                if time.monotonic() > deadline_s:
                    raise BrokerFailed(
                        f"the broker at {broker.bootstrap_servers} did not list {self._count}"
                        f" brokers and a controller within {self._start_timeout_s:g} s; its last"
                        f" description of the cluster: {seen}"
                    )
                if seen is not None:
                    time.sleep(_PAUSE_S)
                with Admin(broker.bootstrap_servers) as admin:
                    seen = admin.describe_cluster()

    def _make(self, number: int) -> Broker:
        host = f"127.0.0.{number}"
        internal_replicas = min(_INTERNAL_REPLICAS, self._count)
        settings: dict[str, Any] = {
            "offsets_topic_replication_factor": internal_replicas,
            "transaction_state_log_replication_factor": internal_replicas,
            "broker_id": number,
            "listeners": f"PLAINTEXT://{host}:0",
            "zookeeper_connect": self.zookeeper.address,
            # The broker that stops last cannot hand its partitions to another broker, so it repeats
            # its ControlledShutdown request. The default backoff of 5 s would delay each test.
            "controlled_shutdown_retry_backoff_ms": 200,
            **self._settings,
        }
        return Broker(
            data=None if self._data is None else self._data / f"broker-{number}",
            port=self._ports or free_port(host),
            start_timeout_s=self._start_timeout_s,
            python=self._python,
            **settings,
        )


def _leader(admin: Admin, topic: str, partition: int) -> int:
    """Return the leader that a broker knows; -1 if it does not know the topic yet."""
    try:
        return admin.describe_topics([topic])[topic].partitions[partition].leader
    except TopicMissing:
        return -1
