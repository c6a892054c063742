"""ActiveMQ on loopback, from its jars, and its JMS client: the oldest release that starts, and one
of today.
"""

import os
import socket
import subprocess
from pathlib import Path

from benchmarks._load.jobs import Measured
from benchmarks._load.pipe import Program
from benchmarks._processes import cpu_seconds
from benchmarks._queue_broker import QueueBroker
from pyspark_klog.testing.ports import HOST, free_port
from tests.support.peers import java, peers_dir

OLDEST_ACTIVEMQ = "5.4.3"
"""The paper's release, 5.4, with corrections: it starts with Java 17."""
NEWEST_ACTIVEMQ = "6.3.1"

_SOURCES = Path(__file__).with_name("_load")
_JAVA_OPTIONS = (
    "-Xmx1g",
    # Warnings only, without a remark that a logging library is missing.
    "-Dorg.apache.commons.logging.Log=org.apache.commons.logging.impl.SimpleLog",
    "-Dorg.apache.commons.logging.simplelog.defaultlog=warn",
    "-Dslf4j.internal.verbosity=ERROR",
)
_CONNECT_TIMEOUT_S = 1.0
_RUN_DEADLINE_S = 900.0
# ActiveMQ's own advice for speed: the client does not copy a message that is not used again, and
# the wire format takes more bytes but less CPU time. jms.optimizeAcknowledge is left out: with it
# consumers of both releases stood still before the end of the queue.
_FASTEST = "jms.copyMessageOnSend=false&wireFormat.tightEncodingEnabled=false"


class ActiveMq(QueueBroker):
    """A broker with its default store, KahaDB, which does not flush the disk itself."""

    def __init__(self, version: str) -> None:
        super().__init__(f"ActiveMQ {version}", f"JMS client {version}")
        self._jms_package = "javax.jms" if version.startswith("5.") else "jakarta.jms"
        self._class_path = ["-cp", f"{_jars(version)}{os.sep}*"]
        self._port = 0
        self._program: Program | None = None

    def start(self) -> subprocess.Popen[bytes]:
        self._port = free_port()
        started = [java(), *_JAVA_OPTIONS, *self._class_path]
        server = [str(_SOURCES / "ActiveMq.java"), str(self._port), str(self.data)]
        broker = self.launch([*started, *server])
        source = self.folder / "Jms.java"
        text = (_SOURCES / source.name).read_text(encoding="utf-8")
        source.write_text(text.replace("javax.jms", self._jms_package), encoding="utf-8")
        client = Program(self.client, [*started, str(source)])
        self._program = self._stack.enter_context(client)
        return broker

    def serves(self) -> bool:
        try:
            with socket.create_connection((HOST, self._port), _CONNECT_TIMEOUT_S) as connection:
                return len(connection.recv(1)) > 0  # the broker's description of its wire format
        except OSError:
            return False

    def send(self, queue: str, messages: int, value_bytes: int) -> Measured:
        return self._run(f"send {self._url(1)} {queue} {messages} {value_bytes}", messages)

    def receive(self, queue: str, messages: int, prefetch: int) -> Measured:
        return self._run(f"receive {self._url(prefetch)} {queue} {messages}", messages)

    def _url(self, prefetch: int) -> str:
        options = f"{_FASTEST}&jms.prefetchPolicy.queuePrefetch={prefetch}"
        return f"tcp://{HOST}:{self._port}?{options}"

    def _run(self, line: str, messages: int) -> Measured:
        if self._program is None:
            raise RuntimeError(f"{self.name} does not run")
        broker_s = cpu_seconds(self.pid)
        answer = self._program.send_line(line, _RUN_DEADLINE_S)
        broker_s = cpu_seconds(self.pid) - broker_s
        return Measured(answer["seconds"], answer["cpu_s"], broker_s, messages, messages, 0)


def is_installed(version: str) -> bool:
    """Whether the jars of a release are there."""
    return any(_jars(version).glob("*.jar"))


def _jars(version: str) -> Path:
    return peers_dir() / f"activemq-{version}"
