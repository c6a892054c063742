"""A ZooKeeper server as a child process, on loopback, from the jars that come with pyspark."""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from pyspark_klog.errors import KlogError
from pyspark_klog.interpreters.lookup import spark_home
from pyspark_klog.testing.ports import free_port

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
# Of a few hundred jars those that a server loads: a JVM looks into every jar on its path.
_JARS = (
    "zookeeper-*.jar", "slf4j-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar",
    "log4j-slf4j*-impl-*.jar", "netty-*.jar", "metrics-core-*.jar", "snappy-java-*.jar",
    "commons-io-*.jar", "commons-cli-*.jar",
)  # fmt: skip
_JVM = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.level=INFO",
    # What was written survives the process, which is all that is ended here.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
)
_HOST = "127.0.0.1"
_PAUSE_S = 0.02
_STARTS = 3
_OUTPUT_TAIL_BYTES = 4_000


class ZooKeeperFailed(KlogError):
    """The server did not come up, or ended by itself; the text has what it printed."""


class _EndedEarly(ZooKeeperFailed):
    """It may have found its port taken."""


class ZooKeeper:
    """A standalone ZooKeeper server; use it in a with statement, or call `start` and `close`.

    The data folder is temporary unless ``data`` is given; data and port stay across `stop`, `kill`
    and `start`, and so do sessions that are not over by then. Sessions may be as short as two ticks
    and as long as a minute. The server ends with the process that started it. Needs Java 17 or
    later (JAVA_HOME, else java of PATH) and pyspark, or a Spark at SPARK_HOME, for the jars.
    """

    def __init__(
        self,
        *,
        data: Path | str | None = None,
        tick_ms: int = 250,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 20.0,
    ) -> None:
        self._given_data = None if data is None else Path(data)
        self._tick_ms = tick_ms
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._folder: Path | None = None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._standing_pid: int | None = None

    # --- what is known of it ---------------------------------------------------------------------
    @property
    def address(self) -> str:
        """``host:port``, for ``zookeeper.connect``."""
        if self._port == 0:
            raise RuntimeError("ZooKeeper has no port yet: use it in a with statement, or start it")
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the server."""
        if self._process is None:
            raise RuntimeError("ZooKeeper does not run")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        """What the server has logged so far; nothing after `close`."""
        path = None if self._folder is None else self._folder / "zookeeper.log"
        if path is None or not path.exists():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    # --- life ------------------------------------------------------------------------------------
    def __enter__(self) -> "ZooKeeper":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process and wait until it serves.

        :raises ZooKeeperFailed: if it ends, or does not serve in time
        """
        if self.is_running:
            raise RuntimeError("ZooKeeper is running")
        atexit.register(self.close)
        for attempt in range(1, _STARTS + 1):
            port = self._port or free_port(_HOST)
            try:
                self._start(port)
                self._port = port
                return
            except BaseException as error:
                self._end(signal.SIGKILL)
                # Another process may have taken the port between the choice and the bind.
                if not isinstance(error, _EndedEarly) or self._port or attempt == _STARTS:
                    raise

    def stop(self) -> None:
        """End the server politely (SIGTERM) and wait for it; the data stay."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server without warning (SIGKILL); the data stay as they are."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let the server stand still (SIGSTOP): connections stay, nothing is answered from when
        this returns."""
        if self._standing_pid != self.pid:
            self._standing_pid = self.pid
            os.kill(self.pid, signal.SIGSTOP)
            # A moment passes until all of its threads stand.
            os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Let a server that stands still go on (SIGCONT)."""
        self._standing_pid = None
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its temporary folder."""
        atexit.unregister(self.close)
        self._end(signal.SIGKILL)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- inside ----------------------------------------------------------------------------------
    def _start(self, port: int) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="klog-zookeeper-"))
        settings = {
            "tickTime": self._tick_ms,
            "maxSessionTimeout": 60_000,
            "dataDir": self._given_data or self._folder / "data",
            "clientPortAddress": _HOST,
            "clientPort": port,
            "maxClientCnxns": 0,
            # It would need Jetty, which is not among the jars.
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        file = self._folder / "zoo.cfg"
        lines = (f"{name}={value}\n" for name, value in settings.items())
        file.write_text("".join(lines), encoding="utf-8")
        command = [_java(), *_JVM, "-cp", _class_path(), _MAIN, str(file)]
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # Java does not notice the end of its parent. A shell does, however that one ends: the
        # system closes the pipe from which it reads.
        self._watcher = subprocess.Popen(
            ["sh", "-c", 'read -r _; kill -KILL "$1"', "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._wait_until_ready(self._process, port)

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not _serves(port):
            if process.poll() is not None:
                raise _EndedEarly(
                    f"ZooKeeper ended at its start with code {process.returncode}: {self._tail()}"
                )
            if time.monotonic() > deadline:
                raise ZooKeeperFailed(
                    f"ZooKeeper did not serve within {self._start_timeout_s:g} s: {self._tail()}"
                )
            time.sleep(_PAUSE_S)
        if process.poll() is not None:  # somebody else's server answers at this port
            raise _EndedEarly(f"ZooKeeper ended at its start: {self._tail()}")

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            # First of all: it must not outlive the process whose id it has.
            watcher.kill()
            watcher.communicate()
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            if how is signal.SIGTERM:
                process.send_signal(signal.SIGCONT)  # one that stands still would not hear it
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ZooKeeperFailed(
                f"ZooKeeper did not end within {self._stop_timeout_s:g} s: {self._tail()}"
            ) from None

    def _tail(self) -> str:
        return self.output()[-_OUTPUT_TAIL_BYTES:].strip() or "it printed nothing"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        where = f"at JAVA_HOME={home}" if home else "on PATH, and JAVA_HOME is not set"
        raise ZooKeeperFailed(
            f"ZooKeeper needs Java, and there is none {where}: install Java 17 or 21 and set "
            "JAVA_HOME to its folder"
        )
    return found


def _class_path() -> str:
    home = spark_home(os.environ)
    jars = [] if home is None else [jar for each in _JARS for jar in (home / "jars").glob(each)]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        where = "and pyspark is not installed" if home is None else f"and {home}/jars has none"
        raise ZooKeeperFailed(
            f"ZooKeeper's jars come with Spark, {where}: pip install 'pyspark-klog[spark]'"
        )
    return os.pathsep.join(str(jar) for jar in sorted(jars))


def _serves(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((_HOST, port), 1.0) as connection:
        connection.sendall(b"srvr")
        said = b""
        while some := connection.recv(4096):
            said += some
        return b"Mode: " in said
    return False
