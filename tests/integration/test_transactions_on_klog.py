"""klog's transactional producer on klog's broker: the same cases as on Apache Kafka."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.ids import TopicPartition
from tests.support.client.transaction_cases import CASES, committed, stable_offset

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "client-transactions.md"


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
    with testing.Broker(**sweep) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_transactions(broker: testing.Broker, case: Callable[[str], None]) -> None:
    case(broker.bootstrap_servers)


def test_the_example_of_the_page(broker: testing.Broker) -> None:
    code = _PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    address = broker.bootstrap_servers
    with Admin(address) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in ("copies", "orders")])
    assert "127.0.0.1:9092" in code
    exec(code.replace("127.0.0.1:9092", address), {})
    assert committed(address, TopicPartition("copies", 0)) == ["value"]
    position = stable_offset(address, "the-copiers-group", TopicPartition("orders", 0))
    assert position is not None
    assert position.offset == 1
