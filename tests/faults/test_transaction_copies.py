"""The soak of transactions (`./dev soak transactions`) in short: each kind of fault, no loss."""

from pathlib import Path

import pytest

from tests.soak.transactions.copying import soak
from tests.soak.transactions.plan import Hit


@pytest.mark.timeout(400)
def test_every_input_is_copied_once_though_copies_and_broker_are_killed(tmp_path: Path) -> None:
    run = soak("librdkafka", 15, 6, print, work=tmp_path, gap_s=1.5)
    assert run.problems == []
    assert all(run.counts[hit.value] for hit in Hit)
    # The kills hit open transactions, so some records were aborted.
    assert run.counts["records aborted"] > 0
