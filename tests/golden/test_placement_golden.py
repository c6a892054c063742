"""Replicas are placed where Kafka's AdminUtils places them."""

import json

from klog_broker.controller.decisions.placement import place_replicas
from pyspark_klog.ids import BrokerId
from tests.support.golden.placement import GOLDEN_FILE


def test_replicas_are_where_kafka_puts_them() -> None:
    cases = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))["cases"]
    for case in cases:
        placed = place_replicas(
            {BrokerId(int(broker)): rack for broker, rack in case["racks"].items()},
            case["partitions"],
            case["replication_factor"],
            start=case["start"],
            shift=case["start"],
            first_partition=case["first_partition"],
        )
        assert [list(row) for row in placed] == case["placed"], case
    assert any(set(case["racks"].values()) != {None} for case in cases)
    assert any(set(case["racks"].values()) == {None} for case in cases)
