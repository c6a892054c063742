"""Apache Kafka's own clients and tools in transactions on klog's broker."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator.transaction_client import TransactionClient
from tests.support.coordinator.transaction_reading import committed_values
from tests.support.eventually import eventually
from tests.support.kafka.dump_log_segments import dump
from tests.support.peers import KAFKA_4_4, NEWEST_KAFKA, OLDEST_KAFKA, run_tool
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

pytestmark = pytest.mark.peers

PRODUCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
# How the tool spells the states PrepareCommit and CompleteCommit.
VERSIONS = [OLDEST_KAFKA, NEWEST_KAFKA, KAFKA_4_4]
DUMPED = {
    OLDEST_KAFKA: ("state=PrepareCommit", "state=CompleteCommit"),
    NEWEST_KAFKA: ('"transactionStatus":2', '"transactionStatus":4'),
    KAFKA_4_4: ('"transactionStatus":"PrepareCommit"', '"transactionStatus":"CompleteCommit"'),
}
PRODUCER_OPTION = dict.fromkeys(VERSIONS, "--command-property") | {OLDEST_KAFKA: "--producer-props"}
RECORDS = 20_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data, {"transaction.state.log.num.partitions": 1}) as running:
        yield running


def _run(version: str, main_class: str, *arguments: str) -> str:
    result = run_tool(version, main_class, arguments)
    assert result.returncode == 0, result.stdout[-2_000:] + result.stderr[-2_000:]
    return result.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_producer_commits_again_and_again(
    broker: BrokerProcess, data: Path, version: str
) -> None:
    """3.9.1 adds partitions itself; the others find transaction.version 2, which raises epochs."""
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        output = _run(
            version,
            PRODUCE,
            *("--topic", "t", "--num-records", str(RECORDS), "--payload-monotonic"),
            *("--throughput", "-1"),
            *("--transactional-id", "mine", "--transaction-duration-ms", "20"),
            *(PRODUCER_OPTION[version], f"bootstrap.servers={broker.bootstrap_servers}"),
        )
        assert re.search(rf"^{RECORDS} records sent, ", output, re.M), output
        assert "Exception" not in output
        found = committed_values(client, "t")
        assert found == [b"%d" % number for number in range(RECORDS)]
        request = DescribeTransactionsRequest(transactional_ids=["mine"])
        (state,) = client.call(request, 0).transaction_states
        assert state.transaction_state == "CompleteCommit"
        assert (state.producer_epoch > 1) == (version != OLDEST_KAFKA)
    broker.terminate()
    segment = data / "__transaction_state-0" / f"{0:020}.log"
    dumped = dump(version, [segment], "--transaction-log-decoder")
    prepared, completed = (dumped.count(each) for each in DUMPED[version])
    assert prepared == completed > 1


class Tool:
    """Kafka's TransactionsCommand of a release, on a broker."""

    def __init__(self, version: str, broker: BrokerProcess) -> None:
        self._version = version
        self._servers = ("--bootstrap-server", broker.bootstrap_servers)

    def rows(self, *words: str) -> list[list[str]]:
        """Return the printed table without its head; columns are separated by tabs."""
        lines = self.lines(*words)
        return [[cell.strip() for cell in line.rstrip().split("\t")] for line in lines[1:]]

    def lines(self, *words: str) -> list[str]:
        return _run(self._version, TRANSACTIONS, *self._servers, *words).splitlines()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def _begin(client: RawClient, transactional_id: str) -> TransactionClient:
    """A transaction is open, with a record in t-0."""
    producer = TransactionClient(client, transactional_id)
    request = FindCoordinatorRequest(key=transactional_id, key_type=1)
    eventually(lambda: client.call(request, 3).error_code == 0)
    eventually(lambda: producer.init() == 0)
    assert producer.produce(TopicPartition("t", 0), transactional_id.encode()) == 0
    return producer


def _state(client: RawClient, transactional_id: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = client.call(request, 0).transaction_states
    return str(found.transaction_state)


def test_kafkas_tool_lists_and_describes_transactions(broker: BrokerProcess, version: str) -> None:
    tool = Tool(version, broker)
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        first, second = (_begin(client, each) for each in ("open-1", "open-2"))
        assert second.end_transaction() == 0
        listed = {row[0]: row[1:] for row in tool.rows("list")}
        assert listed == {
            "open-1": ["0", str(first.producer_id), "Ongoing"],
            "open-2": ["0", str(second.producer_id), "CompleteCommit"],
        }
        # The filter leaves transactions that have run for a day.
        assert tool.rows("list", "--duration-filter", "86400000") == []
        if version != OLDEST_KAFKA:
            pattern = ("--transactional-id-pattern", "open-[2-9]")
            assert [row[0] for row in tool.rows("list", *pattern)] == ["open-2"]
        (described,) = tool.rows("describe", "--transactional-id", "open-1")
        assert described[1:5] == ["open-1", str(first.producer_id), str(first.epoch), "Ongoing"]
        assert described[-1] == "t-0"
        assert first.end_transaction() == 0


def test_kafkas_tool_describes_producers(broker: BrokerProcess, version: str) -> None:
    tool = Tool(version, broker)
    where = ("--topic", "t", "--partition", "0")
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        assert tool.rows("describe-producers", *where) == []
        first, second = (_begin(client, each) for each in ("open-1", "open-2"))
        assert second.end_transaction() == 0
        for broker_id in ((), ("--broker-id", "0")):
            found = {row[0]: row for row in tool.rows("describe-producers", *where, *broker_id)}
            # Producer id, epoch, coordinator's epoch, last sequence, last time, open since.
            assert found[str(first.producer_id)][1] == str(first.epoch)
            assert found[str(first.producer_id)][3] == "0"
            assert found[str(first.producer_id)][5] == "0"
            assert found[str(second.producer_id)][5] == "None"
        assert first.end_transaction() == 0


def test_kafkas_tool_finds_a_hanging_transaction_and_aborts_it(
    broker: BrokerProcess, data: Path, version: str
) -> None:
    """A transaction hangs when its partition has it open, and no coordinator knows it: here its
    coordinator's log is lost."""
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        _begin(client, "lost")
        tool = Tool(version, broker)
        everywhere = ("--broker-id", "0", "--max-transaction-timeout", "0")
        assert tool.rows("find-hanging", *everywhere) == []
    broker.kill()
    (data / "__transaction_state-0" / f"{0:020}.log").write_bytes(b"")
    with BrokerProcess(data, port=broker.address[1]) as again, RawClient(again.address) as client:
        other = _begin(client, "another")
        where = ("--topic", "t", "--partition", "0")
        for asked in (everywhere, (*where, "--max-transaction-timeout", "0")):
            (found,) = eventually(lambda a=asked: tool.rows("find-hanging", *a))
            assert found[:2] == ["t", "0"]
            assert found[5] == "0"  # the offset that it begins at
        tool.lines("abort", *where, "--start-offset", "0")
        assert tool.rows("find-hanging", *everywhere) == []
        assert other.end_transaction() == 0
        assert committed_values(client, "t") == [b"another"]


def test_kafkas_tool_terminates_a_transaction(broker: BrokerProcess) -> None:
    """A command of 4.x alone; it fences the producer."""
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        producer = _begin(client, "stuck")
        Tool(NEWEST_KAFKA, broker).lines("forceTerminateTransaction", "--transactionalId", "stuck")
        assert _state(client, "stuck") in ("CompleteAbort", "Empty")
        assert producer.end_transaction() == ErrorCode.PRODUCER_FENCED
        assert committed_values(client, "t") == []
