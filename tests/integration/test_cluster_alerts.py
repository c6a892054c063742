"""Alerts of a cluster whose ZooKeeper ensemble and controller fail."""

from pathlib import Path

from tests.support.alerts.cluster_alerts import failing_cluster

# Whether the session ends depends on how long the test's ZooKeeper takes to start.
_MAY_FIRE = {"KlogZooKeeperSessionExpired"}


def test_a_failing_cluster_fires_its_alerts_and_no_others(tmp_path: Path) -> None:
    for step in failing_cluster(tmp_path):
        assert set(step.history.firing()) - _MAY_FIRE == step.alerts, step.name
