"""The embedded broker and its pytest fixtures."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.errors import ErrorCode
from tests.support.eventually import eventually
from tests.support.process_table import is_running
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, fetch, first_partition, produced

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parity("beyond: 9 embedded broker")
def test_it_serves_with_its_settings_and_goes_with_its_data() -> None:
    with testing.Broker(num_partitions=3) as broker:
        data = broker.data
        assert data.is_dir()
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t")])
            assert len(admin.describe_topics(["t"])["t"].partitions) == 3
    assert not data.exists()
    assert not broker.is_running


def test_data_and_address_outlive_a_stop_and_a_kill(tmp_path: Path) -> None:
    with testing.Broker(data=tmp_path / "data") as broker:
        address = broker.bootstrap_servers
        with Admin(address) as admin:
            admin.create_topics([NewTopic("stays", 2, 1)])
        for end in (broker.stop, broker.kill):
            end()
            assert not broker.is_running
            broker.start()
            assert broker.bootstrap_servers == address
            with Admin(address) as admin:
                assert "stays" in admin.list_topics()
    assert (tmp_path / "data").is_dir()


def test_asking_for_output_leaves_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker = testing.Broker()
    assert broker.output() == ""
    with broker:
        assert broker.is_running
    assert broker.output() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_does_not_exist_is_said_with_the_brokers_words() -> None:
    with pytest.raises(testing.BrokerFailed, match=r"ended at its start.*num\.partitons"):
        testing.Broker(num_partitons=3).start()


def test_a_broker_that_does_not_come_up_is_ended() -> None:
    silent = [sys.executable, "-c", "import signal; signal.pause()"]
    broker = testing.Broker(python=silent, start_timeout_s=0.2)
    with pytest.raises(testing.BrokerFailed, match=r"did not serve within 0\.2 s"):
        broker.start()
    assert not broker.is_running


def test_a_broker_ends_with_a_process_that_was_killed(tmp_path: Path) -> None:
    """The broker stops in good order, so that its data can be used at once."""
    script = (
        "import sys\n"
        "from pyspark_klog import testing\n"
        "with testing.Broker(data=sys.argv[1]) as broker:\n"
        "    print(broker.bootstrap_servers, broker.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    data = tmp_path / "data"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        servers, pid = parent.stdout.readline().split()
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("kept", 1, 1)])
        parent.kill()
    try:
        eventually((data / ".kafka_cleanshutdown").exists, 60, "the broker has closed its logs")
        eventually(lambda: not is_running(int(pid)), 60, "its process is gone")
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
        raise
    with testing.Broker(data=data) as broker, Admin(broker.bootstrap_servers) as admin:
        assert admin.list_topics() == ["kept"]


def test_records_of_long_ago_are_kept() -> None:
    with testing.Broker(log_retention_check_interval_ms=50) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics(
                [NewTopic("old", 1, 1), NewTopic("mark", 1, 1, {"retention.ms": "1"})]
            )
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with RawClient((host, int(port))) as client:
            for topic in ("old", "mark"):
                produced(client, topic, batch(b"value"))
            eventually(
                lambda: first_partition(fetch(client, "mark")).error_code == OUT_OF_RANGE,
                60,
                "a whole round of retention is over",
            )
            assert first_partition(fetch(client, "old")).records


def test_a_users_folder_of_the_same_name_does_not_get_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "klog_broker.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    with testing.Broker() as broker:
        assert broker.is_running


@pytest.mark.parity("beyond: 9 embedded broker")
def test_the_fixtures_work_in_a_users_tests(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(
        "from pyspark_klog.client.admin.topics import Admin\n"
        "seen = []\n"
        "def test_one(klog_broker, klog_topic):\n"
        "    with Admin(klog_broker.bootstrap_servers) as admin:\n"
        "        assert len(admin.describe_topics([klog_topic])[klog_topic].partitions) == 3\n"
        "    seen.append((klog_broker.pid, klog_topic))\n"
        "def test_two(klog_broker, klog_topic):\n"
        "    assert seen[0][0] == klog_broker.pid\n"
        "    assert seen[0][1] != klog_topic\n"
        "    with Admin(klog_broker.bootstrap_servers) as admin:\n"
        "        assert admin.list_topics() == [klog_topic]\n"
    )
    result = _run_users_tests(tmp_path)
    assert "2 passed" in result.stdout, result.stdout + result.stderr


def test_a_fault_ends_with_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(
        "import pytest\n"
        "from pyspark_klog.client.admin.topics import Admin\n"
        "faults = []\n"
        "@pytest.fixture\n"
        "def topics(klog_broker):\n"
        "    with Admin(klog_broker.bootstrap_servers) as admin:\n"
        "        yield admin.list_topics\n"
        "        assert admin.list_topics() == []\n"
        "def test_one(klog_broker, topics):\n"
        "    added = klog_broker.faults\n"
        "    faults.append(added.answer('Metadata', 'LEADER_NOT_AVAILABLE', times=None))\n"
        "    faults.append(added.disconnect('Metadata', before=True, times=None))\n"
        "    klog_broker.pause()\n"
        "def test_two(klog_broker, topics):\n"
        "    assert topics() == []\n"
        "    assert [each.fired for each in faults] == [0, 0]\n"
    )
    result = _run_users_tests(tmp_path)
    assert "2 passed" in result.stdout, result.stdout + result.stderr


def test_a_fault_that_the_broker_cannot_add_is_refused_with_the_reason() -> None:
    with testing.Broker() as broker:
        with pytest.raises(ValueError, match="no error code 'NOT_LEADER'"):
            broker.faults.answer("Produce", "NOT_LEADER")
        with pytest.raises(testing.FaultFailed, match="brokers serve no API 'Nothing'"):
            broker.faults.delay("Nothing", 1)
        fault = broker.faults.delay("Metadata", 1)
        with Admin(broker.bootstrap_servers) as admin:
            admin.list_topics()
        broker.stop()
        assert fault.fired > 0
        with pytest.raises(testing.FaultFailed, match="it is not running"):
            broker.faults.delay("Metadata", 1)


def test_a_late_response_is_not_taken_for_that_to_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark_klog.testing.faults._PATIENCE_S", 1.0)
    with testing.Broker() as broker:
        broker.pause()
        with pytest.raises(testing.FaultFailed, match="is it paused"):
            broker.faults.delay("Metadata", 1)
        broker.resume()
        with Admin(broker.bootstrap_servers) as admin:
            admin.list_topics()
        with pytest.raises(testing.FaultFailed, match="brokers serve no API 'Nothing'"):
            broker.faults.delay("Nothing", 1)


def test_a_paused_broker_answers_nothing_and_a_restarted_one_has_its_data() -> None:
    with testing.Broker() as broker:
        address, pid = broker.bootstrap_servers, broker.pid
        with Admin(address) as admin:
            admin.create_topics([NewTopic("stays", 1, 1)])
        host, _, port = address.rpartition(":")
        broker.pause()
        with RawClient((host, int(port)), timeout_s=0.2) as client, pytest.raises(TimeoutError):
            fetch(client, "stays")
        broker.resume()
        broker.restart()
        assert (broker.bootstrap_servers, broker.pid != pid) == (address, True)
        with Admin(address) as admin:
            assert admin.list_topics() == ["stays"]
        broker.pause()
        broker.kill()
        assert not broker.is_running


def test_a_broker_takes_the_place_of_a_kafka_container() -> None:
    with testing.KlogContainer(num_partitions=2) as kafka:
        with Admin(kafka.get_bootstrap_server()) as admin:
            admin.create_topics([NewTopic("t")])
            assert len(admin.describe_topics(["t"])["t"].partitions) == 2
        data = kafka.broker.data
    assert not data.exists()
    again = testing.KlogContainer().start()
    assert again.get_bootstrap_server() == again.broker.bootstrap_servers
    again.stop()
    assert not again.broker.is_running


def _run_users_tests(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Where klog is installed pytest finds the plugin by its entry point, and -p is not needed.
    command += ["-p", "pyspark_klog.testing.plugin"] if not _has_entry_point() else []
    return subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _has_entry_point() -> bool:
    from importlib.metadata import entry_points

    return any(e.value == "pyspark_klog.testing.plugin" for e in entry_points(group="pytest11"))
