"""Brokers with queues, as benchmarks run them: processes, folders, the output of PerfTest."""

import subprocess
from pathlib import Path

import pytest

from benchmarks._load.jobs import LoadFailed
from benchmarks._queue_broker import QueueBroker
from benchmarks._rabbitmq import RabbitMq, is_installed


class _Sleeper(QueueBroker):
    """A broker that serves as soon as it runs; a name server starts before it."""

    def __init__(self, command: list[str]) -> None:
        super().__init__("sleeper", "none")
        self.processes: list[subprocess.Popen[bytes]] = []
        self._command = command

    def start(self) -> subprocess.Popen[bytes]:
        self.data.mkdir()
        self.processes.append(self.launch(["sleep", "100"]))
        self.processes.append(self.launch(self._command))
        return self.processes[-1]

    def serves(self) -> bool:
        return "serving" in self.output()


def test_a_broker_has_a_folder_of_its_own_and_leaves_nothing_behind() -> None:
    with _Sleeper(["sh", "-c", "echo serving; exec sleep 100"]) as broker:
        assert broker.pid == broker.processes[-1].pid
        (broker.data / "log").write_bytes(bytes(5_000))
        assert broker.disk_bytes() == 5_000
        with (broker.data / "sparse").open("wb") as file:
            file.truncate(1 << 30)  # space that is set aside but not used
        assert broker.disk_bytes() == 5_000
    assert all(process.returncode is not None for process in broker.processes)
    assert not broker.folder.exists()


def test_a_broker_that_ends_at_its_start_is_reported_with_its_output() -> None:
    broker = _Sleeper(["sh", "-c", "echo no such option; exit 2"])
    with pytest.raises(RuntimeError, match="sleeper ended at its start: no such option"):
        broker.__enter__()
    assert broker.processes[0].returncode is not None
    assert not broker.folder.exists()


class _RabbitMq(RabbitMq):
    """RabbitMQ without a node."""

    def start(self) -> subprocess.Popen[bytes]:
        return self.launch(["sleep", "100"])

    def serves(self) -> bool:
        return True


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders as those of RabbitMQ and PerfTest, and a Java that prints the file ``answer``."""
    monkeypatch.setenv("KLOG_PEERS_DIR", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert not is_installed()
    (tmp_path / "rabbitmq/usr/lib/rabbitmq/lib/rabbitmq_server-3.9.1").mkdir(parents=True)
    (tmp_path / "perf-test-2.22.1").mkdir()
    assert is_installed()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/asked\ncat {tmp_path}/answer\n')
    java.chmod(0o755)
    return tmp_path


def test_rates_are_those_that_perf_test_prints(unpacked: Path) -> None:
    (unpacked / "answer").write_text(
        "id: 1, time 1.000 s, sent: 9999 msg/s\n"
        "id: 1, sending rate avg: 20000 msg/s\nid: 1, receiving rate avg: 40000 msg/s\n"
    )
    with _RabbitMq() as broker:
        assert (broker.name, broker.client) == ("RabbitMQ 3.9.1", "PerfTest 2.22.1")
        assert broker.send("q", 60_000, 200).seconds == 3.0
        asked = (unpacked / "asked").read_text()
        for option in ("--flag persistent", "--pmessages 60000", "--size 200", "--queue q"):
            assert option in asked
        assert "--confirm" not in asked
        received = broker.receive("q", 60_000, 1_000)
        assert (received.records, received.seconds) == (60_000, 1.5)
        assert "--cmessages 60000 --autoack" in (unpacked / "asked").read_text()


def test_a_perf_test_without_a_rate_is_a_failure(unpacked: Path) -> None:
    (unpacked / "answer").write_text("Main thread caught exception: connection refused\n")
    with _RabbitMq() as broker, pytest.raises(LoadFailed, match="PerfTest sending: Main thread"):
        broker.send("q", 10, 200)
