"""The driver's side of the exactly-once sink on klog: the same cases as on Apache Kafka."""

from collections.abc import Callable, Iterator

import pytest

from pyspark_klog import testing
from tests.support.spark.sink_commit_cases import CASES


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
    with testing.Broker(**sweep) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_commits(broker: testing.Broker, case: Callable[[str], None]) -> None:
    case(broker.bootstrap_servers)
