"""The soak of the connector (`./dev soak connector`) in short: each kind of fault once."""

from pathlib import Path

import pytest

from tests.soak.connector import soak
from tests.soak.plan import short_plan


@pytest.mark.timeout(900)
def test_every_record_is_seen_and_exactly_once_by_batch_id(tmp_path: Path) -> None:
    problems = soak(short_plan(), print, work=tmp_path, rate_a_s=100, interval="1 second")
    assert problems == []
