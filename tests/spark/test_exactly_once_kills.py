"""The soak of the exactly-once sink (`./dev soak exactly-once`) in short."""

from pathlib import Path

import pytest

from tests.soak.exactly_once import soak
from tests.soak.process_faults import short_plan


@pytest.mark.timeout(600)
def test_every_record_is_copied_once_and_in_order_per_key(tmp_path: Path) -> None:
    problems = soak(short_plan(), print, work=tmp_path, timeout_ms=8_000)
    assert problems == []
