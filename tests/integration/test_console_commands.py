"""`klog produce`, `klog consume` and `klog perf` on a running broker, and as processes."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog_broker.cli.records import record_reader, record_writer
from pyspark_klog.client.admin.groups import committed_offsets
from pyspark_klog.ids import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.cli.console_cases import CASES, consumed, klog, produced
from tests.support.client.cases import client_of, new_topic
from tests.support.eventually import eventually

SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
}
KLOG = [sys.executable, "-c", "from klog_broker.cli import main; main()"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("console") / "data", SETTINGS) as running:
        yield running.bootstrap_servers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(servers: str, case: Callable[[str], None]) -> None:
    case(servers)


@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: case.__name__)
def test_without_pyarrow(
    servers: str, case: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (record_reader, record_writer):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    case(servers)


def test_a_line_is_there_before_the_next_is_typed(servers: str) -> None:
    topic = new_topic(servers, 1)
    typing = subprocess.Popen(
        [*KLOG, "produce", topic, "--bootstrap-server", servers], stdin=subprocess.PIPE
    )
    assert typing.stdin is not None
    for number in (1, 2):
        typing.stdin.write(b"%d\n" % number)
        typing.stdin.flush()
        eventually(
            lambda number=number: len(consumed(servers, topic)) == number,
            deadline_s=60,
            what="the line is a record",
        )
    typing.stdin.close()
    assert typing.wait(60) == 0


def test_ctrl_c_ends_reading_with_a_count(servers: str) -> None:
    topic = new_topic(servers, 1)
    produced(servers, topic, b"1\n2\n")
    command = [*KLOG, "consume", topic, "--from-beginning", "--bootstrap-server", servers]
    reading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reading.stdout is not None and reading.stderr is not None
    # Printed lines can be read while the reader waits for more records.
    assert [reading.stdout.readline(), reading.stdout.readline()] == [b"1\n", b"2\n"]
    reading.send_signal(signal.SIGINT)
    assert (reading.wait(60), reading.stderr.read()) == (0, b"klog: 2 records\n")


def test_reading_goes_on_after_a_broker_was_unavailable(tmp_path: Path) -> None:
    """Killed and away for longer than --timeout; the group's commits go on, too."""
    data = tmp_path / "data"
    with BrokerProcess(data, SETTINGS) as killed:
        port = killed.address[1]
        servers = killed.bootstrap_servers
        topic = new_topic(servers, 1)
        produced(servers, topic, b"1\n")
        command = [*KLOG, "consume", topic, "--from-beginning", "--group", "tail"]
        command += ["--max-messages", "2", "--timeout", "2000", "--bootstrap-server", servers]
        reading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert reading.stdout is not None and reading.stderr is not None
        assert reading.stdout.readline() == b"1\n"
        killed.kill()
        words = reading.stderr.readline().decode()
        assert words.startswith(
            f"klog: {topic}-0 could not be read from offset 1 on within 2000 ms"
        )
        assert words.endswith("; retrying\n")
    with BrokerProcess(data, SETTINGS, port):
        produced(servers, topic, b"2\n")
        assert reading.communicate(timeout=60)[0] == b"2\n"
        assert reading.returncode == 0
        with client_of(servers) as client:
            partition = TopicPartition(topic, 0)
            assert committed_offsets(client, "tail", [partition])[partition].offset == 2


def test_nobody_reads_on(servers: str) -> None:
    topic = new_topic(servers, 1)
    produced(servers, topic, b"1\n" * 100_000)
    words = " ".join(["consume", topic, "--from-beginning", "--bootstrap-server", servers])
    result = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {words} | head -n 2', *(KLOG[0], KLOG[2])],
        capture_output=True,
        timeout=100,
    )
    assert (result.stdout, result.stderr) == (b"1\n1\n", b"")


def test_settings_come_from_files_and_options(servers: str, tmp_path: Path) -> None:
    topic = new_topic(servers, 1)
    file = tmp_path / "client.properties"
    file.write_text("compression.type=lz4\nmax.request.size=1000\n")
    config = ("--command-config", str(file))
    refused = klog(servers, "produce", topic, *config, given=b"x" * 1_500)
    assert "larger than 1000 bytes" in refused.stderr
    more = ("--producer-property", "max.request.size=2000")
    produced(servers, topic, b"x" * 1_500, *config, *more)
    assert consumed(servers, topic, *config) == [b"x" * 1_500]


def test_a_topic_that_is_not_there(servers: str) -> None:
    written = klog(servers, "produce", "no-such", "--timeout", "300", given=b"x\n")
    assert written.exit_code == 1
    assert written.stderr.startswith(
        "klog: topic no-such does not exist, or has no partitions yet, after waiting 300 ms"
    )
    assert written.stderr.endswith("klog: 0 records are acknowledged\n")
    read = klog(servers, "consume", "no-such")
    assert (read.exit_code, read.stderr) == (1, "klog: topic no-such does not exist\n")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ("produce t --json --headers", "--json: expected no --headers"),
        ("produce t --producer-property nonsense", "nonsense is no setting; expected name=value"),
        ("produce t --producer-property ack=1", "ack is no setting of Kafka's clients; did you"),
        ("produce t --file no-such-file", "cannot read no-such-file"),
        ("consume t --print key,valeu", "--print 'valeu': expected some of topic, partition"),
        ("consume t --offset -1", "--offset -1: expected earliest, latest, an offset from 0 on"),
        ("consume t --offset 1 --from-beginning", "--offset and --from-beginning: expected one"),
        ("consume t --offset 1 --group g", "--offset and --group: expected one"),
        ("consume t --isolation-level some", "'some' is not one of"),
        ("perf produce --topic t --num-records 1", "expected one of --record-size and"),
        ("perf consume --topic t", "Missing option '--messages'"),
    ],
)
def test_wrong_usage(servers: str, arguments: str, expected: str) -> None:
    result = klog(servers, *arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
