"""RabbitMQ on loopback, from the packages that `./dev bench paper` unpacks, and its PerfTest."""

import os
import re
import resource
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks._load.jobs import LoadFailed, Measured
from benchmarks._processes import cpu_seconds
from benchmarks._queue_broker import QueueBroker
from pyspark_klog.testing.ports import HOST, free_ports
from tests.support.peers import java, peers_dir

PERF_TEST_VERSION = "2.22.1"

_CONNECT_TIMEOUT_S = 1.0
_RUN_DEADLINE_S = 900.0
# The header of AMQP 0-9-1; the server answers with its method connection.start.
_AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
_RATE = re.compile(r"(sending|receiving) rate avg: (\d+) msg/s")


class RabbitMq(QueueBroker):
    """A RabbitMQ node with a name server (epmd) of its own, both of them on loopback.

    The queues are durable classic queues. The node keeps all files in its temporary folder, so that
    an installed RabbitMQ is left alone.
    """

    def __init__(self) -> None:
        self._home = _rabbitmq_home()
        version = self._home.name.partition("-")[2]
        super().__init__(f"RabbitMQ {version}", f"PerfTest {PERF_TEST_VERSION}")
        self._port = 0

    def start(self) -> subprocess.Popen[bytes]:
        self._port, names_port, node_port = free_ports(3)
        erlang = _root() / "usr" / "lib" / "erlang"
        (self.folder / "plugins").write_text("[].", encoding="ascii")
        kernel = "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
        environment = {
            **os.environ,
            "PATH": f"{erlang / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),  # the node's secret is written there
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(names_port),
            # The start script becomes the node's process instead of its parent.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": "klog-bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": kernel,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # These files do not exist, so that the settings are RabbitMQ's defaults.
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "settings"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
        }
        (names,) = erlang.glob("erts-*/bin/epmd")
        self.launch([str(names), "-address", HOST, "-port", str(names_port)], environment)
        return self.launch([str(self._home / "sbin" / "rabbitmq-server")], environment)

    def serves(self) -> bool:
        try:
            with socket.create_connection((HOST, self._port), _CONNECT_TIMEOUT_S) as connection:
                connection.sendall(_AMQP_HEADER)
                return len(connection.recv(1)) > 0
        except OSError:
            return False

    def send(self, queue: str, messages: int, value_bytes: int) -> Measured:
        """Send persistent messages without confirms."""
        options = ["--producers", "1", "--consumers", "0", "--pmessages", str(messages)]
        size = ["--size", str(value_bytes)]
        return self._perf_test("sending", queue, messages, [*options, *size])

    def receive(self, queue: str, messages: int, prefetch: int) -> Measured:
        """Receive messages that count as acknowledged when they are sent.

        RabbitMQ ignores ``prefetch`` for such consumers.
        """
        options = ["--producers", "0", "--consumers", "1", "--cmessages", str(messages)]
        return self._perf_test(
            "receiving", queue, messages, [*options, "--autoack", "--qos", str(prefetch)]
        )

    def _perf_test(self, what: str, queue: str, messages: int, options: Sequence[str]) -> Measured:
        command = [java(), "-cp", f"{peers_dir() / f'perf-test-{PERF_TEST_VERSION}'}{os.sep}*"]
        command += [
            "com.rabbitmq.perf.PerfTest",
            "--uri",
            f"amqp://guest:guest@{HOST}:{self._port}",
        ]
        command += ["--flag", "persistent", "--queue", queue, "--auto-delete", "false", *options]
        own_s, broker_s = _children_cpu_s(), cpu_seconds(self.pid)
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_RUN_DEADLINE_S
        )
        own_s, broker_s = _children_cpu_s() - own_s, cpu_seconds(self.pid) - broker_s
        rates = dict(_RATE.findall(ended.stdout))
        if ended.returncode != 0 or not int(rates.get(what, "0")):
            raise LoadFailed(f"PerfTest {what}: {ended.stdout[-1000:]}{ended.stderr[-1000:]}")
        seconds = messages / int(rates[what])
        return Measured(seconds, own_s, broker_s, messages, messages, 0)


def is_installed() -> bool:
    """Whether the packages and PerfTest are there."""
    has_client = (peers_dir() / f"perf-test-{PERF_TEST_VERSION}").is_dir()
    return has_client and any(_root().glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))


def _root() -> Path:
    """The folder in which the packages are unpacked."""
    return peers_dir() / "rabbitmq"


def _rabbitmq_home() -> Path:
    (home,) = _root().glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")
    return home


def _children_cpu_s() -> float:
    """CPU time of all children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
