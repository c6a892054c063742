"""Prometheus itself evaluates the alert rules as our evaluator of `./dev test` does."""

import json
from pathlib import Path

from tests.support.alerts.cluster_alerts import failing_cluster
from tests.support.alerts.history import History
from tests.support.alerts.promtool import RULES, promtool_file, run_promtool
from tests.support.alerts.scenarios import SCENARIOS
from tools.docs.dashboard import dashboard_expressions


def check_histories(folder: Path, histories: dict[str, History]) -> None:
    path = folder / "tests.yml"
    path.write_text(promtool_file(histories))
    run_promtool("test", "rules", str(path))


def test_prometheus_accepts_the_rules() -> None:
    assert "SUCCESS" in run_promtool("check", "rules", str(RULES))


def test_prometheus_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    expressions = dashboard_expressions()
    rules = [{"record": f"m{number}", "expr": each} for number, each in enumerate(expressions)]
    path = tmp_path / "dashboard.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(expressions)} rules found" in run_promtool("check", "rules", str(path))


def test_prometheus_fires_the_alerts_of_each_failure(tmp_path: Path) -> None:
    check_histories(tmp_path, {name: each.cause() for name, each in SCENARIOS.items()})


def test_prometheus_fires_the_alerts_of_a_failing_cluster(tmp_path: Path) -> None:
    for number, step in enumerate(failing_cluster(tmp_path / "cluster")):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_histories(folder, {step.name: step.history})
