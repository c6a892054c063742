"""Three ZooKeeper servers that form an ensemble, on loopback: two of them are a quorum."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from pyspark_klog.testing.ports import free_port
from pyspark_klog.testing.zookeeper import _HOST, _JVM, _class_path, _java, _serves
from tests.support.eventually import eventually
from tests.support.repo.documents import ROOT, code_block

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_NUMBERS = (1, 2, 3)
_PAGE = (ROOT / "docs" / "clusters-of-brokers.md").read_text(encoding="utf-8")


def zoo_cfg(settings: Mapping[str, object], peers: str) -> str:
    """Return the zoo.cfg of docs/clusters-of-brokers.md, with other values for `settings`, and the
    lines `peers` in place of those of its servers."""
    lines = [line.split("=", 1) for line in code_block(_PAGE, "properties", "tickTime=").split()]
    of_page = {name: value for name, value in lines if not name.startswith("server.")}
    both = {**of_page, **settings}
    return "".join(f"{name}={value}\n" for name, value in both.items()) + peers


class Ensemble:
    """Use it in a with statement. `kill` and `start` end and start single servers, by number."""

    def __init__(self, folder: Path, *, tick_ms: int = 250) -> None:
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._watchers: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = {number: free_port(_HOST) for number in _NUMBERS}
        peers = "".join(
            f"server.{number}={_HOST}:{free_port(_HOST)}:{free_port(_HOST)}\n"
            for number in _NUMBERS
        )
        for number, port in self._ports.items():
            data = folder / f"zookeeper-{number}"
            data.mkdir(parents=True)
            (data / "myid").write_text(f"{number}\n")
            settings = {
                "tickTime": tick_ms,
                "initLimit": 40,
                "syncLimit": 20,
                "maxSessionTimeout": 60_000,
                "dataDir": data,
                "clientPortAddress": _HOST,
                "clientPort": port,
            }
            (data / "zoo.cfg").write_text(zoo_cfg(settings, peers))

    @property
    def connect(self) -> str:
        """The value of ``zookeeper.connect``."""
        return ",".join(f"{_HOST}:{port}" for port in self._ports.values())

    def __enter__(self) -> Ensemble:
        self.start(*_NUMBERS)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*_NUMBERS)

    def start(self, *numbers: int) -> None:
        """Start these servers; return when each of them serves clients."""
        for number in numbers:
            data = self._folder / f"zookeeper-{number}"
            command = [_java(), *_JVM, "-cp", _class_path(), _MAIN, str(data / "zoo.cfg")]
            with (data / "output.log").open("ab") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            self._processes[number] = process
            # This shell kills the server if the tests' process ends early, which closes the pipe.
            self._watchers[number] = subprocess.Popen(
                ["sh", "-c", 'read -r _; kill -KILL "$1"', "sh", str(process.pid)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        for number in numbers:
            port = self._ports[number]
            eventually(lambda port=port: _serves(port), 60, f"ZooKeeper server {number}")

    def kill(self, *numbers: int) -> None:
        """Kill these servers; their data remain."""
        for number in numbers:
            process = self._processes.pop(number, None)
            if process is not None:
                # End the watcher first: later the system may give the process id to another
                # process.
                watcher = self._watchers.pop(number)
                watcher.kill()
                watcher.communicate()
                process.kill()
                process.wait()
