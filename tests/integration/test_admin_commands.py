"""`klog topics`, `brokers`, `leaders`, `configs`, `records`, `log-dirs` and `transactions` on a
running broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.cli.command_cases import (
    CASES,
    a_hanging_transaction_is_found_and_aborted,
    json_output,
    klog,
)
from tests.support.client.cases import batch, client_of, new_topic

SETTINGS = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("commands") / "data", SETTINGS) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(broker: BrokerThread, case: Callable[[str], None]) -> None:
    case(broker.bootstrap_servers)


def test_a_deletion_that_waits_for_a_disk_is_shown(tmp_path: Path) -> None:
    directories = ",".join(str(tmp_path / each) for each in ("a", "b"))
    with BrokerThread(None, SETTINGS | {"log.dirs": directories}) as broker:
        servers = broker.bootstrap_servers
        klog(servers, "topics", "create", "waits", "stays", "--partitions", "4")
        first = broker.in_loop(lambda: broker.broker.services.logs.directories[0])
        broker.in_loop(lambda: first.go_offline(OSError(5, "the disk is gone")))
        klog(servers, "topics", "delete", "waits")
        told = {each["name"]: each["deleting"] for each in json_output(servers, "topics", "list")}
        assert told == {"waits": True, "stays": False}
        listed = klog(servers, "topics", "list")
        assert ["waits", "deleting", "-"] in [line.split() for line in listed.stdout.splitlines()]
        for names in ((), ("waits",)):
            described = klog(servers, "topics", "describe", *names)
            assert described.exit_code == 0
            assert "topic waits  is being deleted: the deletion waits" in described.stdout
            assert ("topic stays" in described.stdout) is (not names)


def test_a_hanging_transaction(tmp_path: Path) -> None:
    """The transaction hangs because its coordinator's log is lost."""
    data = tmp_path / "data"
    with BrokerProcess(data, SETTINGS) as broker, client_of(broker.bootstrap_servers) as client:
        topic = new_topic(broker.bootstrap_servers, 1)
        producer = TransactionalProducer(client, "lost")
        producer.init_transactions()
        producer.begin_transaction()
        producer.add(TopicPartition(topic, 0), *batch([b"k"]))
        producer.flush()
        broker.kill()
    (data / "__transaction_state-0" / f"{0:020}.log").write_bytes(b"")
    with BrokerProcess(data, SETTINGS) as broker:
        a_hanging_transaction_is_found_and_aborted(broker.bootstrap_servers, topic, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        "brokers describe one",
        "leaders elect",
        "leaders elect t --all",
        "leaders elect t:x",
        "configs describe",
        "configs describe --quotas --topic t",
        "configs describe --topic t --user u",
        "configs describe --user u --default-user",
        "configs describe --ip 127.0.0.1 --user u",
        "configs alter --topic t",
        "configs alter --set a=1",
        "configs alter --topic t --set a",
        "configs alter --user u --append a=1",
        "configs alter --user u --set a=much",
        "records delete",
        "records delete --topic t --partition 0",
        "records delete --topic t --partition 0 --before-offset -2",
        "records delete --topic t --offset-json-file f",
        "records delete --offset-json-file no-such-file",
        "transactions abort",
        "transactions abort id --topic t",
        "transactions abort --topic t --partition 0",
        "transactions abort --topic t --partition 0 --producer-id 1",
        "transactions abort --topic t --partition 0 --start-offset 1 --producer-id 1",
        "transactions describe",
        "transactions describe-producers t:x",
    ],
)
def test_wrong_usage(broker: BrokerThread, arguments: str) -> None:
    result = klog(broker.bootstrap_servers, *arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("{", "is no JSON"),
        ("[]", 'expected {"partitions"'),
        ('{"partitions": [{"topic": "t"}]}', 'expected {"partitions"'),
        ('{"partitions": [{"topic": "t", "partition": "0", "offset": 1}]}', "expected {"),
        ('{"partitions": [], "version": 1}', "names no partitions"),
        ('{"partitions": [], "version": 2}', "is of version 2; expected 1"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}', "an offset from -1 to"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1},'
            ' {"topic": "t", "partition": 0, "offset": 2}]}',
            "names t-0 twice",
        ),
    ],
)
def test_a_file_of_offsets_that_is_wrong(
    broker: BrokerThread, tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(text)
    result = klog(broker.bootstrap_servers, "records", "delete", "--offset-json-file", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"klog: {file}")
    assert expected in result.stderr


def test_what_has_settings(broker: BrokerThread) -> None:
    topic = new_topic(broker.bootstrap_servers, 1)
    found = json_output(broker.bootstrap_servers, "configs", "list")
    assert {"type": "topic", "name": topic} in found
    assert {"type": "broker", "name": "0"} in found
    result = klog(broker.bootstrap_servers, "configs", "list")
    assert ["topic", topic] in [line.split() for line in result.stdout.splitlines()]
