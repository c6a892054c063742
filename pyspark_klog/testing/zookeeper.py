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
# The jars that a ZooKeeper server needs. Spark comes with a few hundred, and a JVM opens every jar
# on its class path, so a path with all of them would delay the start.
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
    # A test stops or kills the process, but not the machine, so data survive without fsync.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
)
_HOST = "127.0.0.1"
_PAUSE_S = 0.02
_STARTS = 3
_OUTPUT_TAIL_BYTES = 4_000


class ZooKeeperFailed(KlogError):
    """The server did not start, ended by itself, or did not stop in time. The text of the error
    includes the end of the server's log, or says that Java or the jars were not found."""


class _EndedEarly(ZooKeeperFailed):
    """The server ended while it started, perhaps because another process had taken its port."""


class ZooKeeper:
    """A standalone ZooKeeper server; use it in a with statement, or call `start` and `close`.

    The data folder is temporary unless ``data`` is given; data, port and unexpired sessions survive
    `stop`, `kill` and `start`. Session timeouts may be from two ticks to one minute. The server
    ends with the process that started it. Needs Java 17 or
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
        self._suspended_pid: int | None = None

    # --- state of the server ---------------------------------------------------------------------
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
            raise RuntimeError("ZooKeeper is not running: use it in a with statement, or start it")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        """The server's log so far; empty after `close`."""
        path = None if self._folder is None else self._folder / "zookeeper.log"
        if path is None or not path.exists():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    # --- start, stop and pause -------------------------------------------------------------------
    def __enter__(self) -> "ZooKeeper":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server's process and wait until it accepts clients.

        :raises ZooKeeperFailed: if Java or the jars are missing, or the process ends or does not
            accept clients in time
        """
        if self.is_running:
            raise RuntimeError("ZooKeeper is already running")
        atexit.register(self.close)
        for attempt in range(1, _STARTS + 1):
            port = self._port or free_port(_HOST)
            try:
                self._start(port)
                self._port = port
                return
            except BaseException as error:
                self._end(signal.SIGKILL)
                # Try again with another port if the server ended early: another process may have
                # taken the port before the server listened on it. A restart must keep its port.
                if not isinstance(error, _EndedEarly) or self._port or attempt == _STARTS:
                    raise

    def stop(self) -> None:
        """Stop the server with SIGTERM and wait until its process ends; its data remain."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL; its data remain as they are."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the server (SIGSTOP): its connections stay open, and it answers nothing once
        this method has returned."""
        if self._suspended_pid != self.pid:
            self._suspended_pid = self.pid
            os.kill(self.pid, signal.SIGSTOP)
            # Wait until all threads of the server are suspended, which takes a moment.
            os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Resume a suspended server (SIGCONT)."""
        self._suspended_pid = None
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill the server with SIGKILL and remove its temporary folder."""
        atexit.unregister(self.close)
        self._end(signal.SIGKILL)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # --- the server's process --------------------------------------------------------------------
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
            # ZooKeeper's admin server would need Jetty, which is not in _JARS.
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
        # Java does not notice when its parent process ends, but this shell does: however the
        # parent ends, the system closes the pipe from which the shell reads, and the shell then
        # kills the server.
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
        # If this server has ended, a server of another process has the port and answered.
        if process.poll() is not None:
            raise _EndedEarly(f"ZooKeeper ended at its start: {self._tail()}")

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            # The watcher is a shell that kills the server if this process ends. End the watcher
            # first: once the server has ended, the system may give the server's process id to
            # another process, and the watcher would kill that process.
            watcher.kill()
            watcher.communicate()
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            if how is signal.SIGTERM:
                process.send_signal(signal.SIGCONT)  # a suspended process would not handle SIGTERM
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
            f"ZooKeeper needs Java, which was not found {where}: install Java 17 or 21 and set "
            "JAVA_HOME to its folder"
        )
    return found


def _class_path() -> str:
    home = spark_home(os.environ)
    jars = [] if home is None else [jar for each in _JARS for jar in (home / "jars").glob(each)]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        where = "and pyspark is not installed" if home is None else f"and {home}/jars has none"
        raise ZooKeeperFailed(
            f"ZooKeeper's jars come with Spark, {where}: leave SPARK_HOME unset, and "
            "pip install 'pyspark-klog[spark]'"
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
