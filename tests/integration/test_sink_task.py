"""A task of the exactly-once sink on klog's broker, under each transaction.version."""

from collections.abc import Callable, Iterator

import pytest

from pyspark_klog import testing
from pyspark_klog.client.errors import UnsupportedByBroker
from pyspark_klog.client.transactions import blocking_driver
from pyspark_klog.client.transactions import producer as transactions
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.spark.sink.exactly_once import task
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from tests.support.spark.sink_task_cases import CASES
from tests.support.spark.sink_workers import own_caches
from tests.support.spark.sink_world import World

# No test here waits this long, except for a row that is never committed.
pytestmark = pytest.mark.timeout(100)


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
    with testing.Broker(**sweep) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from own_caches(monkeypatch)


# The client asks only whether the version is at least 2: version 0 takes the way of version 1.
@pytest.mark.parametrize(
    ("case", "version"),
    [(case, version) for version in (1, 2) for case in CASES] + [(CASES[0], 0)],
    ids=lambda value: f"version{value}" if isinstance(value, int) else value.__name__,
)
def test_a_task(
    broker: testing.Broker,
    case: Callable[[str], None],
    version: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert blocking_driver.TRANSACTION_VERSION == "transaction.version"
    for module in (transactions, task):
        # klog's broker says 2, and takes clients that go by an older one.
        monkeypatch.setattr(module, "transaction_version", lambda client: (0, version))
    case(broker.bootstrap_servers)


def test_what_was_never_ended_is_named_and_nothing_is_written(
    broker: testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """klog forgets no marker; Apache Kafka does (tests/peers/test_sink_open_transactions.py)."""
    world = World(broker.bootstrap_servers)
    with monkeypatch.context() as patch:
        patch.setattr(task, "find_open_transactions", lambda *_: {3: 17, 2: 40})
        with pytest.raises(ExactlyOnceRefused, match="--partition 2 --start-offset 40"):
            world.worker().write(0, "0")
    assert world.committed == []
    world.worker().write_and_end(0, "0")
    assert world.committed == ["0"]


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (UnsupportedByBroker("DescribeProducers"), False),
        (BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no READ"), True),
    ],
)
def test_brokers_without_describe_producers_hold_no_task_back(
    broker: testing.Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: KlogError,
    is_told: bool,
) -> None:
    def open_since(*_: object) -> dict[int, int]:
        raise error

    monkeypatch.setattr(task, "find_open_transactions", open_since)
    world = World(broker.bootstrap_servers)
    world.worker().write_and_end(0, "0")
    assert world.committed == ["0"]
    assert ("never ended" in caplog.text) is is_told
