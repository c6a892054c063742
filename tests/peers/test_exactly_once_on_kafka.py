"""The exactly-once sink through kills on Apache Kafka 3.9 and 4.3: the plan of `./dev test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.exactly_once import SERVER_SETTINGS, soak
from tests.soak.kills import short_plan
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer


@pytest.fixture(params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, properties=SERVER_SETTINGS) as server:
        yield server


@pytest.mark.timeout(900)
def test_every_record_is_copied_once_and_in_order_per_key(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    problems = soak(short_plan(), print, work=tmp_path, timeout_ms=8_000, server=kafka)
    assert problems == []
