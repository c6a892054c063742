"""A broker with few file descriptors: many partitions, many clients, too few for a start."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from klog_broker.lifecycle.exit_codes import ExitCode
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from tests.support.broker_process import BrokerProcess, with_descriptors
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    batch,
    create_topic,
    fetch_request,
    produced,
    records_of,
)

LIMIT = 128
PARTITIONS = 136


def open_descriptors(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def read_everything(client: RawClient) -> dict[int, list[bytes | None]]:
    """Read all partitions, by one Fetch for each offset."""
    found: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
    for offset in range(2):
        request = fetch_request("many", offset, range(PARTITIONS))
        for partition in client.call(request, 12).responses[0].partitions:
            assert partition.error_code == 0
            records = [each for each in records_of(partition) if each.offset >= offset]
            found[partition.partition_index] += [each.value for each in records[:1]]
    return found


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, descriptors=LIMIT) as broker, RawClient(broker.address) as client:
        assert f"descriptors={LIMIT} (ulimit -n)" in broker.log()
        create_topic(client, "many", PARTITIONS, segment_bytes=500)
        for number in range(2):
            for partition in range(PARTITIONS):
                # Some of them get a second segment.
                value = b"%d.%d" % (partition, number) + b"v" * (0 if partition % 10 else 300)
                assert produced(client, "many", batch(value), partition=partition) == number
        assert open_descriptors(broker) < LIMIT // 2
        expected = read_everything(client)
        broker.kill()
    assert all(len(values) == 2 for values in expected.values())
    with BrokerProcess(data, descriptors=LIMIT) as broker, RawClient(broker.address) as client:
        # After the start only requested files are open.
        assert open_descriptors(broker) < 20
        assert read_everything(client) == expected
        assert produced(client, "many", batch(b"more"), partition=7) == 2
        assert broker.terminate() == ExitCode.OK
        assert "offline" not in broker.log()
    assert (data / ".kafka_cleanshutdown").exists()


def test_more_clients_than_descriptors(tmp_path: Path) -> None:
    """Served clients leave descriptors for files; the others wait until one of them closes."""
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path / "data", descriptors=LIMIT))
        clients = [stack.enter_context(RawClient(broker.address)) for _ in range(50)]
        create_topic(clients[0], "t")
        eventually(lambda: "`ulimit -n` allow" in broker.log(), what="the warning")
        for client in clients:
            client.send(MetadataRequest(topics=[]), 9)
        for client in clients:
            # Each that is closed lets one that waits in.
            assert client.receive(MetadataRequest, 9).brokers
            client.close()
        with RawClient(broker.address) as last:
            assert produced(last, "t", batch(b"a")) == 0
        assert broker.terminate() == ExitCode.OK


def test_too_few_for_a_start_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawClient(broker.address) as client:
        create_topic(client, "t")
    before = sorted(path.name for path in (tmp_path / "data").iterdir())
    command = [sys.executable, "-P", "-m", "klog_broker", "--port", "0"]
    command = with_descriptors(100, [*command, "--data", str(tmp_path / "data")])
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    text = ended.stderr
    assert (ended.returncode, ended.stdout) == (ExitCode.REFUSED, "")
    assert text.count("\n") == 1
    assert "may have 100 file descriptors, a broker needs at least 128" in text
    assert "`ulimit -n`" in text
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before
