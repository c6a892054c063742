"""The driver's side of the exactly-once sink on Apache Kafka 3.9 and 4.3: the cases as on klog.

4.3 has transaction.version 2, under which every transaction has an epoch of its own (KIP-890).
"""

from collections.abc import Callable, Iterator

import pytest

from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.spark.sink_commit_cases import CASES


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    sweep = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with KafkaServer(request.param, properties=sweep) as server:
        yield server.bootstrap_servers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_commits(kafka: str, case: Callable[[str], None]) -> None:
    case(kafka)
