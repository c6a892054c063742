"""klog's transactional producer on klog's broker: the same cases as on Apache Kafka."""

from collections.abc import Callable, Iterator

import pytest

from pyspark_klog import testing
from tests.support.transaction_cases import CASES


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker() as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_transactions(broker: testing.Broker, case: Callable[[str], None]) -> None:
    case(broker.bootstrap_servers)
