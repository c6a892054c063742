"""A task of the exactly-once sink on klog's broker, under each transaction.version."""

import gc
from collections.abc import Callable, Iterator

import pytest

from pyspark_klog import testing
from pyspark_klog.client.transactions import carrying
from pyspark_klog.client.transactions import producer as transactions
from pyspark_klog.spark.sink.exactly_once import task
from pyspark_klog.spark.workers import clients
from tests.support.sink_task_cases import CASES

# Nothing here waits that long, unless for a row that nobody commits.
pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
    with testing.Broker(**sweep) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # For ever: no matter for a worker, but for the process of the tests.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    for name in ("_clients", "_producers", "_held"):
        monkeypatch.setattr(clients, name, {})
    monkeypatch.setattr(clients, "_MOST_CLIENTS", 100)
    monkeypatch.setattr(task, "_PATIENCE_MS", 200)
    yield
    for client in clients._clients.values():
        client.close()


@pytest.mark.parametrize("version", [0, 1, 2], ids=lambda version: f"version{version}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_task(
    broker: testing.Broker,
    case: Callable[[str], None],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert carrying.TRANSACTION_VERSION == "transaction.version"
    for module in (transactions, task):
        # klog's broker says 2, and takes clients that go by an older one.
        monkeypatch.setattr(module, "transaction_version", lambda client: (0, version))
    case(broker.bootstrap_servers)
