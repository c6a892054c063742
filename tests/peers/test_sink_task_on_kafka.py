"""A task of the exactly-once sink on Apache Kafka 3.9 and 4.3: the same cases as on klog."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.spark.sink_task_cases import CASES
from tests.support.spark.sink_workers import own_caches


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    sweep = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with KafkaServer(request.param, properties=sweep) as server:
        yield server.bootstrap_servers


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from own_caches(monkeypatch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_task(kafka: str, case: Callable[[str], None]) -> None:
    case(kafka)
