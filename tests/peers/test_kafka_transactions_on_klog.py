"""Apache Kafka's own clients and tools in transactions on klog's broker."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess
from tests.support.dump_log_segments import dump
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, run_tool
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic
from tests.support.transaction_client import TransactionClient
from tests.support.transaction_reading import committed_values

pytestmark = pytest.mark.peers

PRODUCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
# How the tool spells the states PrepareCommit and CompleteCommit.
DUMPED = {
    OLDEST_KAFKA: ("state=PrepareCommit", "state=CompleteCommit"),
    NEWEST_KAFKA: ('"transactionStatus":2', '"transactionStatus":4'),
}
PRODUCER_OPTION = {OLDEST_KAFKA: "--producer-props", NEWEST_KAFKA: "--command-property"}
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


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_kafkas_producer_commits_again_and_again(
    broker: BrokerProcess, data: Path, version: str
) -> None:
    """3.9.1 adds partitions itself; 4.3.1 finds transaction.version 2, and has its epoch raised."""
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
        assert (state.producer_epoch > 1) == (version == NEWEST_KAFKA)
    broker.terminate()
    segment = data / "__transaction_state-0" / f"{0:020}.log"
    dumped = dump(version, [segment], "--transaction-log-decoder")
    prepared, completed = (dumped.count(each) for each in DUMPED[version])
    assert prepared == completed > 1


def test_kafkas_tool_shows_transactions(broker: BrokerProcess) -> None:
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    with RawClient(broker.address) as client:
        create_topic(client, "t")
        producer = TransactionClient(client, "open")
        request = FindCoordinatorRequest(key="open", key_type=1)
        eventually(lambda: client.call(request, 3).error_code == 0)
        eventually(lambda: producer.init() == 0)
        assert producer.produce(TopicPartition("t", 0), b"x") == 0
        listed = _run(NEWEST_KAFKA, TRANSACTIONS, *servers, "list").splitlines()
        assert listed[1].split()[:3] == ["open", "0", str(producer.producer_id)]
        assert listed[1].split()[3] == "Ongoing"
        described = _run(
            NEWEST_KAFKA, TRANSACTIONS, *servers, "describe", "--transactional-id", "open"
        ).splitlines()[1]
        assert described.split()[-1] == "t-0"
        assert producer.end() == 0
