"""The soak of the exactly-once sink (`./dev soak exactly-once`) in short."""

from pathlib import Path

import pytest

from tests.soak.exactly_once import soak
from tests.soak.process_faults import short_plan


@pytest.mark.timeout(900)
def test_every_record_is_copied_once_and_in_order_per_key(tmp_path: Path) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        print(line)
        said.append(line)

    # With a shorter interval the micro-batches between the faults cost twice as much.
    problems = soak(short_plan(), say, work=tmp_path, timeout_ms=8_000, interval="2 seconds")
    assert problems == []
    assert f"{len(short_plan())} kills in all" in map(str.strip, said)
