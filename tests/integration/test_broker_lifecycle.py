"""The broker as a process: its one line, its exit codes, its refusals, and the data it keeps."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from klog_broker.cli.broker import command
from klog_broker.lifecycle.exit_codes import ExitCode
from pyspark_klog._version import __version__
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, create_topic, produced, read_all, topic_id_of

# A line of the log: its level, logger and text.
_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} level=([A-Z]+) logger=([a-z_.]+) (.*)\n")


def refused(data: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code of a broker that does not start, and its output without log lines."""
    command = [sys.executable, "-P", "-m", "klog_broker", "--data", str(data), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == ""
    lines = ended.stderr.splitlines(keepends=True)
    return ended.returncode, "".join(line for line in lines if not _LINE.fullmatch(line))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_says_one_line_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        produced(client, "t", batch(b"a"))
        broker.send_signal(number)
        assert broker.wait() == 0
    host, port = broker.address
    assert broker.stdout == [f"klog ready on {host}:{port}\n"]
    assert host == "127.0.0.1"
    assert "Traceback" not in broker.log()


def test_a_broker_that_was_started_with_nohup_ignores_sighup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        broker = BrokerProcess(tmp_path / "data")
    finally:
        signal.signal(signal.SIGHUP, before)
    broker.send_signal(signal.SIGHUP)
    with RawClient(broker.address) as client:
        create_topic(client, "t")
    assert broker.terminate() == 0
    assert "SIGHUP" not in broker.log()


def test_what_it_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, broker.client() as client:
        topic_id = create_topic(client, "t", partitions=3, segment_bytes=100_000)
        cluster_id = client.call(MetadataRequest(topics=[]), 9).cluster_id
        for number in range(30):
            produced(client, "t", batch(b"%d" % number), partition=number % 3)
    with BrokerThread(tmp_path / "data") as broker, broker.client() as client:
        assert topic_id_of(client, "t") == topic_id
        assert client.call(MetadataRequest(topics=[]), 9).cluster_id == cluster_id
        for partition in range(3):
            values = [record.value for record in read_all(client, "t", partition)]
            assert values == [b"%d" % number for number in range(partition, 30, 3)]
        assert produced(client, "t", batch(b"more")) == 10


def test_missing_data_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as thread, thread.client() as client:
        create_topic(client, "t", partitions=2)
        for partition in range(2):
            produced(client, "t", batch(b"a"), partition=partition)
    shutil.rmtree(data / "t-1")
    code, sentence = refused(data, "--port", "0")
    assert code == ExitCode.REFUSED_DIRECTORY
    assert f"there is no folder of t-1, created in {data}; mount the disk" in sentence
    for options in (["--accept-missing"], []):
        with BrokerProcess(data, options=options) as broker, RawClient(broker.address) as client:
            assert len(read_all(client, "t", 0)) == 1
            assert read_all(client, "t", 1) == []
        line = f"topic=t partition=1 log_dir={data} missing: a new log begins in a new leader epoch"
        assert broker.log().count(line) == 1


def test_a_directory_that_another_broker_holds(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        code, text = refused(tmp_path / "data", "--port", "0")
        assert code == ExitCode.REFUSED_DIRECTORY
        assert text.startswith("klog: ")
        assert text.count("\n") == 1
        assert str(tmp_path / "data") in text
        with RawClient(broker.address) as client:
            assert client.call(MetadataRequest(topics=[]), 9).brokers


def test_a_directory_of_another_broker_id(tmp_path: Path) -> None:
    BrokerThread(tmp_path / "data", {"broker.id": 4}).stop()
    code, text = refused(tmp_path / "data", "--port", "0", "--set", "broker.id=5")
    assert code == ExitCode.REFUSED_DIRECTORY
    assert "belongs to broker 4" in text
    assert "5" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_instead_of_a_directory(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    code, text = refused(file / below, "--port", "0")
    assert code == ExitCode.REFUSED_DIRECTORY
    assert f"{file} is a file; expected a directory" in text
    assert text.count("\n") == 1


def test_data_that_klog_does_not_know_is_refused_and_adopted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as thread, thread.client() as client:
        topic_id = create_topic(client, "t", partitions=2)
        for number in range(10):
            produced(client, "t", batch(b"%d" % number), partition=number % 2)
    (data / "klog-metadata").unlink()
    code, text = refused(data, "--port", "0")
    assert code == ExitCode.REFUSED_DIRECTORY
    assert text.startswith("klog: there are partition folders, but no file klog-metadata")
    assert f"{data}/t-0, {data}/t-1;" in text
    assert text.count("\n") == 1
    for options in (["--adopt"], []):
        with BrokerProcess(data, options=options) as broker, RawClient(broker.address) as client:
            assert topic_id_of(client, "t") == topic_id
            for partition in (0, 1):
                values = [record.value for record in read_all(client, "t", partition)]
                assert values[:5] == [b"%d" % number for number in range(partition, 10, 2)]
            produced(client, "t", batch(b"more"))
    assert "topic=t adopted partitions=2: its settings are not known" in broker.log()


def test_a_file_of_a_cluster_is_refused_and_kafkas_single_node_serves(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    text = (
        "process.roles=broker,controller\nnode.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    file.write_text(text + "authorizer.class.name=a.B\nprocess.roles=broker\n")
    code, said = refused(tmp_path / "data", "--config", str(file))
    assert code == 2
    assert [line.split("=")[0] for line in said.splitlines()] == [
        f"klog: {file}:8: authorizer.class.name",
        f"klog: {file}:9: process.roles",
    ]
    assert not (tmp_path / "data").exists()
    file.write_text(text)
    with BrokerProcess(tmp_path / "data", options=["--config", str(file)]) as broker:
        assert broker.address[1] not in (9092, 9093)
        with RawClient(broker.address) as client:
            (row,) = client.call(MetadataRequest(topics=[]), 9).brokers
            assert (row.node_id, row.host) == (1, "localhost")


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, text = refused(tmp_path / "data", "--port", str(port))
        assert code == ExitCode.REFUSED_ADDRESS
        assert f"port {port}" in text
        assert "in use" in text
        assert text.count("\n") == 1
    # The refused broker has released the directory.
    with BrokerProcess(tmp_path / "data", port=port) as broker:
        assert broker.address[1] == port


def test_an_address_that_is_not_this_machines(tmp_path: Path) -> None:
    code, text = refused(tmp_path / "data", "--set", "listeners=PLAINTEXT://192.0.2.1:9092")
    assert code == ExitCode.REFUSED_ADDRESS
    assert "listeners" in text
    code, text = refused(tmp_path / "data", "--set", "listeners=PLAINTEXT://no.such.host.invalid:1")
    assert code == ExitCode.REFUSED_ADDRESS
    assert "Traceback" not in text


def test_a_setting_out_of_range_is_a_usage_error(tmp_path: Path) -> None:
    code, text = refused(tmp_path / "data", "--set", "num.partitions=0")
    assert code == 2
    assert "num.partitions=0 is refused: it must be at least" in text
    assert not (tmp_path / "data").exists()


def test_windows_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    ended = CliRunner().invoke(command, ["--data", str(tmp_path / "data")])
    assert ended.exit_code == 1
    assert "Linux and macOS" in ended.output
    assert not (tmp_path / "data").exists()


def test_clients_of_each_listener_get_its_advertised_address(tmp_path: Path) -> None:
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "INSIDE://localhost:0,OUTSIDE://example.org:1234",
    }
    with BrokerThread(tmp_path / "data", settings) as thread:
        told = {}
        for name, port in thread.broker.ports.items():
            with RawClient(("127.0.0.1", port)) as client:
                (row,) = client.call(MetadataRequest(topics=[]), 9).brokers
                told[name] = (row.host, row.port)
        assert told == {
            "INSIDE": ("localhost", thread.broker.ports["INSIDE"]),
            "OUTSIDE": ("example.org", 1234),
        }


def test_several_data_directories(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    settings = {"log.dirs": ",".join(map(str, directories))}
    for round_number in range(2):
        with (
            BrokerThread(None, settings) as broker,
            broker.client() as client,
        ):
            if round_number == 0:
                create_topic(client, "t", partitions=4)
            for partition in range(4):
                produced(client, "t", batch(b"x"), partition=partition)
                assert len(read_all(client, "t", partition)) == round_number + 1
    for directory in directories:
        assert len(list(directory.glob("t-*"))) == 2


# --- log lines from start to stop -----------------------------------------------------------------


def told(broker: BrokerProcess) -> list[str]:
    """Return the log from INFO on, without times and values that change from run to run."""
    lines = [_LINE.fullmatch(line) for line in broker.log().splitlines(keepends=True)]
    assert None not in lines, broker.log()
    changing = (
        r"\b(took_ms|pid|id|cluster_id|cut_at|descriptors|connections(?==\d+ open)|open_files)=\S+"
        r"|127.0.0.1:\d+"
    )
    return [
        re.sub(changing, lambda found: found[1] or "ADDRESS", line[3])
        for line in lines
        if line is not None and line[1] in ("INFO", "WARNING", "ERROR", "CRITICAL")
    ]


def test_the_log_describes_start_and_stop(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, RawClient(broker.address) as client:
        create_topic(client, "kept", partitions=2, segment_bytes=100_000)
        create_topic(client, "gone")
        produced(client, "kept", batch(b"a"))
        client.call(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=30_000), 5)
        broker.kill()
    serving = "serving cluster_id listeners=PLAINTEXT://ADDRESS advertised=PLAINTEXT://ADDRESS"
    assert told(broker) == [
        "limits of this process: descriptors (ulimit -n) connections open_files",
        f"starting version={__version__} broker_id=0 log_dirs={data} pid",
        f"log_dir={data} loaded logs=0 recovered=0 cut=0 cut_bytes=0 looked_through_bytes=0"
        " took_ms",
        f"{serving} topics=0 partitions=0 took_ms",
        "topic=kept created id partitions=2 configs={'segment.bytes': '100000'}",
        "topic=gone created id partitions=1 configs={}",
        "topic=gone deleted id partitions=1 configs={}",
    ]
    with (data / "kept-0" / f"{0:020}.log").open("r+b") as log:
        log.truncate(40)
    broker.log_path.unlink()
    with BrokerProcess(data) as broker, RawClient(broker.address) as client:
        client.call(MetadataRequest(topics=[]), 9)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait() == 0
    assert told(broker) == [
        "limits of this process: descriptors (ulimit -n) connections open_files",
        f"starting version={__version__} broker_id=0 log_dirs={data} pid",
        f"log={data}/kept-0/{0:020}.log cut_at cut_bytes=40 next_offset=0",
        f"log_dir={data} loaded logs=2 recovered=2 cut=1 cut_bytes=40 looked_through_bytes=0"
        " took_ms",
        f"{serving} topics=1 partitions=2 took_ms",
        "stopping reason='SIGTERM' connections=1",
        "stopped exit_code=0 took_ms",
    ]


def test_the_log_says_why_the_broker_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "klog.life")
    thread = BrokerThread(tmp_path / "data")
    thread.broker.loop.post(lambda: 1 // 0)
    assert thread.stop() is ExitCode.BUG
    assert "stopping reason='a bug' connections=0" in caplog.messages
    assert caplog.messages[-1].startswith("stopped exit_code=70 ")


def test_the_log_level_counts_whatever_its_case(tmp_path: Path) -> None:
    arguments = ["--port", "0", "--data", str(tmp_path / "data"), "--until-stdin-ends"]
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "klog_broker", *arguments, "--log-level", "Warning"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.startswith("klog ready on ")
    assert ended.stderr == ""
