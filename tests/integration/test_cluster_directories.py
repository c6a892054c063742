"""A broker in a cluster needs all of its data directories, at its start and later."""

from errno import EIO
from pathlib import Path

import pytest

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from pyspark_klog.testing.zookeeper import ZooKeeper
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_requests import create_topic
from tests.support.runtime.memory_files import MemoryFiles
from tests.support.zookeeper.client import ZooKeeperClient

SESSION_MS = 3_000


def test_a_broker_in_a_cluster_ends_when_a_data_directory_fails(tmp_path: Path) -> None:
    with ZooKeeper() as zookeeper:
        settings = {
            "zookeeper.connect": zookeeper.address,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        }
        with BrokerThread(None, settings) as thread:
            failed = thread.in_loop(lambda: thread.broker.services.logs.directories[1])
            thread.in_loop(lambda: failed.go_offline(OSError(5, "the disk is gone")))
            eventually(lambda: not thread.is_running, deadline_s=60, what="the broker's end")
            assert thread.stop() == ExitCode.DISKS_LOST
        with ZooKeeperClient(zookeeper.address) as client:
            assert client.children("/brokers/ids") == []


def test_a_broker_in_a_cluster_does_not_start_without_one_of_its_data_directories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The logs of the other one are not looked through any more; nor is that an orderly end."""
    files = MemoryFiles()
    with ZooKeeper() as zookeeper:
        settings = {
            "zookeeper.connect": zookeeper.address,
            "zookeeper.session.timeout.ms": f"{SESSION_MS}",
            "log.dirs": "/a,/b",
            "log.index.size.max.bytes": "4096",
        }
        with BrokerThread(None, settings, files=files) as thread, thread.client() as client:
            metadata = thread.broker.services.metadata
            eventually(lambda: metadata.image.controller_id >= 0, 60, "a controller")
            create_topic(client, "orders", 4)
        for directory in ("/a", "/b"):
            assert len([each for each in files.list_dir(Path(directory)) if "orders" in each]) == 2
            files.remove(Path(directory, ".kafka_cleanshutdown"))
        sync_dir = MemoryFiles.sync_dir

        def fail(self: MemoryFiles, path: Path) -> None:
            if path == Path("/a"):
                raise OSError(EIO, "input/output error", str(path))
            sync_dir(self, path)

        monkeypatch.setattr(MemoryFiles, "sync_dir", fail)
        settings["listeners"] = "PLAINTEXT://127.0.0.1:0"
        config = BrokerConfig.load(None, settings)
        with pytest.raises(CannotStart, match=r"needs all of them.*: /a; start") as refused:
            BrokerServer(config, files=files).start()
        assert refused.value.exit_code is ExitCode.DISKS_LOST
        assert not files.locks
