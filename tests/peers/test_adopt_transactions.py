"""Kafka's directory, left in the middle of transactions: on klog they end as they were to."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator.transaction_client import TransactionClient
from tests.support.coordinator.transaction_reading import committed_values
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

pytestmark = pytest.mark.peers

WHERE = TopicPartition("plain", 0)
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_open_transactions_go_on_and_end_on_klog(tmp_path: Path, version: str) -> None:
    raises = version == NEWEST_KAFKA
    data = tmp_path / "data"
    with KafkaServer(version) as kafka, RawClient(("127.0.0.1", kafka.port)) as client:
        create_topic(client, "plain")
        going_on, too_late = (
            TransactionClient(client, each, raises=raises) for each in ("going-on", "too-late")
        )
        for producer, timeout_ms in ((going_on, 600_000), (too_late, 5_000)):
            coordinator = FindCoordinatorRequest(key=producer.transactional_id, key_type=1)
            eventually(lambda r=coordinator: client.call(r, 3).error_code == 0, 30)
            eventually(lambda p=producer, t=timeout_ms: p.init(timeout_ms=t) == 0, 30)
            if not raises:
                eventually(lambda p=producer: p.add(WHERE) == [0])
            value = producer.transactional_id.encode()
            eventually(lambda p=producer, v=value: p.produce(WHERE, v) is ErrorCode.NONE)
        os.kill(kafka.pid, signal.SIGKILL)
        shutil.copytree(kafka.log_dir, data)
    broker = BrokerProcess(data, SETTINGS, options=["--adopt"])
    with broker, RawClient(broker.address) as client:
        going_on.caller = too_late.caller = client
        assert going_on.produce(WHERE, b"and on") is ErrorCode.NONE
        assert going_on.end_transaction() == 0
        assert eventually(lambda: committed_values(client, "plain")) == [b"going-on", b"and on"]
        assert too_late.end_transaction() in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_TXN_STATE,
        )
        fresh = TransactionClient(client, "fresh", raises=raises)
        assert fresh.init() == 0
        if not raises:
            assert fresh.add(WHERE) == [0]
        assert fresh.produce(WHERE, b"fresh") is ErrorCode.NONE
        assert fresh.end_transaction() == 0
        assert committed_values(client, "plain")[-1] == b"fresh"
