"""The exactly-once sink through kills on Apache Kafka 3.9 and 4.3: the plan of `./dev test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.exactly_once import SERVER_SETTINGS, soak
from tests.soak.process_faults import short_plan
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

# A broker that was killed cannot register again before its last session has ended. If a transaction
# is past its time-out by then, Kafka drops its markers and never aborts it (docs/exactly-once.md).
_SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
_TIMEOUT_MS = 20_000


@pytest.fixture(params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, properties=SERVER_SETTINGS | _SESSION) as server:
        yield server


@pytest.mark.timeout(900)
def test_every_record_is_copied_once_and_in_order_per_key(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    problems = soak(short_plan(), print, work=tmp_path, timeout_ms=_TIMEOUT_MS, server=kafka)
    assert problems == []
