"""The peers that tests compare klog with: Apache Kafka's jars, and a node of it that runs.

`./dev peers` and `./dev bench` fetch the jars; nothing here downloads anything.
"""

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark_klog.testing.ports import free_ports
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
OLDEST_KAFKA = "3.9.1"
NEWEST_KAFKA = "4.3.1"
"""The newest release whose behaviour klog is compared with everywhere."""
KAFKA_4_4 = "4.4.0"
"""A newer release: klog is compared with its definitions of messages, its error codes and its new
versions of APIs, and serves its tools and clients."""
PARITY_VARIABLE = "KLOG_PARITY_KAFKA"

_START_DEADLINE_S = 90.0
_STOP_DEADLINE_S = 30.0
_START_ATTEMPTS = 3


# ApiVersions version 0, correlation id 1, no client id, behind its size.
_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class PeersMissing(Exception):
    """The jars are not there. The text says how they come."""


class _EndedEarly(Exception):
    """The node's process ended before it served."""


def kafka_release() -> str | None:
    """The release of Apache Kafka that this process compares connectors on; None: klog alone.

    `./dev peers parity` sets it for each of its runs.
    """
    return os.environ.get(PARITY_VARIABLE) or None


def peers_dir() -> Path:
    """The folder of the jars: $KLOG_PEERS_DIR, else `.peers` at the top of the checkout."""
    return Path(os.environ.get("KLOG_PEERS_DIR") or ROOT / ".peers")


def kafka_jars(version: str) -> Path:
    """The folder with Apache Kafka's jars of ``version`` ("3.9.1", "4.3.1")."""
    return _folder_of_jars(f"kafka-{version}")


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, as `spark.jars` wants them."""
    return sorted(_folder_of_jars("spark-connector").glob("*.jar"))


def spark_avro_jars() -> list[Path]:
    """The jar of Spark's `from_avro`, as `spark.jars` wants it."""
    return sorted(_folder_of_jars("spark-avro").glob("*.jar"))


def java() -> str:
    """The Java launcher: $JAVA_HOME's (`./dev` exports one that fits), else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise PeersMissing("Apache Kafka needs Java, and there is none: `./dev peers` installs it")
    return found


class KafkaServer:
    """A one-node Apache Kafka (KRaft) on loopback, as a context manager.

    ``properties`` overrides single lines of its server.properties. ``listeners`` are further ones
    by name, with their security protocol; they advertise localhost (`address_of`).
    ``format_arguments`` go to the storage tool. The data lies in a temporary folder that goes with
    the server. Every wait is bounded; the server is ended by its process id.
    """

    def __init__(
        self,
        version: str = NEWEST_KAFKA,
        *,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        listeners: Mapping[str, str] | None = None,
        format_arguments: Sequence[str] = (),
        start_deadline_s: float = _START_DEADLINE_S,
    ) -> None:
        self.version = version
        self.jars = kafka_jars(version)
        self.port = 0
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._listener_ports: dict[str, int] = {}
        self._format_arguments = list(format_arguments)
        self._heap_mb = heap_mb
        self._start_deadline_s = start_deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the one node."""
        return f"127.0.0.1:{self.port}"

    def address_of(self, listener: str) -> str:
        """``localhost:port`` of one of ``listeners``."""
        return f"localhost:{self._listener_ports[listener]}"

    @property
    def log_dir(self) -> Path:
        """The node's data directory: a folder for each partition."""
        return self._home / "data"

    @property
    def pid(self) -> int:
        """The process id of the node."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="klog-kafka-"))
        try:
            for attempt in range(1, _START_ATTEMPTS + 1):
                try:
                    self._start()
                    break
                except _EndedEarly:
                    # Another process may have taken a port between the choice and the bind.
                    if attempt == _START_ATTEMPTS:
                        raise
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the node (politely, then by force) and removes its folder; a second call is fine."""
        self._end_process()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def shut_down(self) -> None:
        """Ends the node politely; its data stay where they are until `stop`."""
        self._end_process()

    def start_again(self) -> None:
        """Starts a node that has ended: same port, same data."""
        self._launch()

    def restart(self, meanwhile: Callable[[], object] | None = None) -> None:
        """Ends the node without warning and starts it again: same port, same data.

        ``meanwhile`` is called while nobody serves.
        """
        assert self._process is not None
        self._process.kill()
        self._end_process()
        if meanwhile is not None:
            meanwhile()
        self._launch()

    def output(self) -> str:
        """Return all that the node has printed so far."""
        path = self._home / "output.txt"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def run_tool(
        self,
        main_class: str,
        *arguments: str,
        stdin: str | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's tools (``org.apache.kafka.tools.TopicCommand`` ...) to its end."""
        return run_tool(self.version, main_class, arguments, stdin=stdin, timeout_s=timeout_s)

    @property
    def _home(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the server has no folder: use it in a with statement")
        return self._folder

    def _start(self) -> None:
        self.port, controller_port, *further = free_ports(2 + len(self._listeners))
        self._listener_ports = dict(zip(self._listeners, further, strict=True))
        config = self._home / "server.properties"
        config.write_text(self._server_properties(controller_port), encoding="utf-8")
        shutil.rmtree(self.log_dir, ignore_errors=True)
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatted = run_tool(
            self.version,
            "kafka.tools.StorageTool",
            # `--cluster-id=` in one word: an id may begin with a dash.
            [
                *("format", f"--cluster-id={cluster_id}", "-c", str(config), "--ignore-formatted"),
                *self._format_arguments,
            ],
            timeout_s=_START_DEADLINE_S,
        )
        if formatted.returncode != 0:
            raise RuntimeError(f"Kafka's storage tool failed: {formatted.stdout}{formatted.stderr}")
        self._launch()

    def _launch(self) -> None:
        with (self._home / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [
                    java(),
                    f"-Xmx{self._heap_mb}m",
                    "-XX:+UseG1GC",
                    *_class_path(self.jars),
                    "kafka.Kafka",
                    str(self._home / "server.properties"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
            )
        what = f"Kafka {self.version} serving"
        eventually(self._serves, deadline_s=self._start_deadline_s, what=what)

    def _serves(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise _EndedEarly(f"Kafka {self.version} ended at its start: {self.output()[-2000:]}")
        # Its port opens before it serves: only an answer counts.
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
        ):
            connection.sendall(_API_VERSIONS_REQUEST)
            return len(connection.recv(4)) > 0
        return False

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _server_properties(self, controller_port: int) -> str:
        ports = self._listener_ports.items()
        further = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports)
        advertised = "".join(f",{name}://localhost:{port}" for name, port in ports)
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        protocols += "".join(f",{name}:{protocol}" for name, protocol in self._listeners.items())
        lines = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
            f"CONTROLLER://127.0.0.1:{controller_port}{further}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}{advertised}",
            "listener.security.protocol.map": protocols,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.log_dir),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.hours": "-1",  # records of tests carry times of long ago
            **self._properties,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


def run_tool(
    version: str,
    main_class: str,
    arguments: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a class of Apache Kafka's jars, also without a server (DumpLogSegments), to its end."""
    return subprocess.run(
        [java(), "-Xmx512m", *_class_path(kafka_jars(version)), main_class, *arguments],
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _class_path(jars: Path) -> list[str]:
    return ["-cp", f"{jars}{os.sep}*"]


def _folder_of_jars(name: str) -> Path:
    folder = peers_dir() / name
    if not any(folder.glob("*.jar")):
        raise PeersMissing(f"no jars in {folder}: `./dev peers` fetches them through Maven")
    return folder
