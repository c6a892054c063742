"""klog's transactional producer on Apache Kafka 3.9 and 4.3: the same cases as on klog.

4.3 has transaction.version 2, under which partitions join by being written to and every transaction
has an epoch of its own (KIP-890); 3.9 has not.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.client.transaction_cases import CASES
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    sweep = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with KafkaServer(request.param, properties=sweep) as server:
        yield server.bootstrap_servers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_transactions(kafka: str, case: Callable[[str], None]) -> None:
    case(kafka)
