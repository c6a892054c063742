"""The soak of a cluster (`./dev soak cluster`) in short: each way in which a broker goes away."""

from pathlib import Path

import pytest

from tests.soak.cluster.plan import short_plan
from tests.soak.cluster.soak import soak


@pytest.mark.timeout(600)
def test_acknowledged_records_are_there_once_though_brokers_fail(tmp_path: Path) -> None:
    faults = short_plan()
    run = soak(faults, print, work=tmp_path)
    assert run.report.problems == []
    assert all(run.report.counts[fault.kind.value] for fault in faults)
    assert run.acknowledged > 0
