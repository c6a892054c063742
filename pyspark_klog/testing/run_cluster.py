"""Runs ZooKeeper and brokers until Ctrl-C: ``python -m pyspark_klog.testing.run_cluster``."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from pyspark_klog.closed_pipe import quiet_on_closed_pipe
from pyspark_klog.errors import KlogError
from pyspark_klog.testing.cluster import KlogCluster

_PORT = 9092
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end the cluster; the last one is sent when a terminal is closed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster until SIGINT, SIGTERM or SIGHUP; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="./dev cluster",
        description="Start ZooKeeper and brokers on loopback; Ctrl-C ends all of it.",
    )
    parser.add_argument("--brokers", type=int, default=3, help="the number of brokers (3)")
    parser.add_argument(
        "--port", type=int, default=_PORT, help=f"all brokers' port ({_PORT}); 0: free ports"
    )
    parser.add_argument(
        "--data", type=Path, help="folder that keeps the data; by default they are deleted"
    )
    given = parser.parse_args(arguments)
    for number in _SIGNALS:
        is_nohup = number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
        if not is_nohup:
            signal.signal(number, _interrupt)
    try:
        with KlogCluster(given.brokers, data=given.data, ports=given.port) as cluster:
            sys.stdout.write(_how_to_use(cluster))
            sys.stdout.flush()
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except (KlogError, ValueError) as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # The exception below begins the shutdown of the cluster. Ignore further signals, so that a
    # second Ctrl-C cannot interrupt the shutdown.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _how_to_use(cluster: KlogCluster) -> str:
    rows = [
        f"  broker {number}: {broker.bootstrap_servers}, pid {broker.pid}, data {broker.data}"
        for number, broker in enumerate(cluster.brokers, 1)
    ]
    count = len(cluster.brokers)
    replicas, in_sync = min(count, 3), min(count, 2)
    first = cluster.broker(1)
    host, _, port = first.bootstrap_servers.partition(":")
    asks = "" if int(port) == _PORT else f" --bootstrap-server {first.bootstrap_servers}"
    return "\n".join(
        (
            f"ready: {count} brokers, and ZooKeeper at {cluster.zookeeper.address}",
            *rows,
            f"bootstrap.servers={cluster.bootstrap_servers}",
            f"klog topics create events --partitions 3 --replication-factor {replicas}"
            f" --config min.insync.replicas={in_sync}{asks}",
            f"makes a topic, and `klog topics describe events{asks}` shows its leaders and in-sync"
            " replicas.",
            "`kill -9` a pid: other brokers become leaders after the session timeout, 18 seconds."
            " To start broker 1 again:",
            f"klog broker --port {port} --data {first.data} --set broker.id=1"
            f" --set listeners=PLAINTEXT://{host}:{port}"
            f" --set zookeeper.connect={cluster.zookeeper.address}",
            "docs/clusters-of-brokers.md has more. Ctrl-C ends all of it.",
            "",
        )
    )


if __name__ == "__main__":
    with quiet_on_closed_pipe():
        sys.exit(main())
