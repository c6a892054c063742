"""The soak of transactions in short, with Kafka's Java clients."""

from pathlib import Path

import pytest

from tests.soak.transactions.copying import soak
from tests.soak.transactions.plan import Hit

pytestmark = pytest.mark.peers


@pytest.mark.timeout(400)
def test_every_input_is_copied_once_by_kafkas_java_clients(tmp_path: Path) -> None:
    run = soak("java", 30, 6, print, work=tmp_path, gap_s=3)
    assert run.problems == []
    assert all(run.counts[hit.value] for hit in Hit)
    assert run.counts["records aborted"] > 0
