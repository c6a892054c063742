"""The soak of a cluster in short, with Kafka's Java clients at work beside librdkafka."""

from pathlib import Path

import pytest

from tests.soak.cluster.plan import short_plan
from tests.soak.cluster.soak import soak

pytestmark = pytest.mark.peers


@pytest.mark.timeout(900)
def test_records_acknowledged_to_java_are_there_once_though_brokers_fail(tmp_path: Path) -> None:
    faults = short_plan()
    run = soak(faults, print, work=tmp_path, with_java=True)
    assert run.report.problems == []
    assert all(run.report.counts[fault.kind.value] for fault in faults)
    assert run.report.counts["records of Java's producer"] > 0
