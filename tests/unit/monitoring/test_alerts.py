"""The alert rules: each failure of the operator's pages fires the alerts of docs/metrics.md.

tests/integration/test_cluster_alerts.py has the failures for which a real ZooKeeper is needed.
"""

import json
import re

import pytest

from klog_broker.monitoring.catalog import BY_NAME
from tests.support.alerts import promql
from tests.support.alerts.cluster_alerts import CLUSTER_ALERTS
from tests.support.alerts.history import INTERVAL_S, History, Target
from tests.support.alerts.promql import Labels, UnsupportedPromql
from tests.support.alerts.scenarios import SCENARIOS
from tests.support.repo.documents import ROOT
from tools.docs.alerts import ALERTS
from tools.docs.dashboard import dashboard, dashboard_expressions
from tools.docs.failures import FAILURES, Failure

NO_LABELS: Labels = frozenset()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_failure_fires_its_alerts_and_no_others(name: str) -> None:
    scenario = SCENARIOS[name]
    assert set(scenario.cause().firing()) == scenario.alerts


def test_a_failure_fires_each_alert() -> None:
    fired = set(CLUSTER_ALERTS).union(*(each.alerts for each in SCENARIOS.values()))
    assert fired == {alert.name for alert in ALERTS}


def base_name(name: str) -> str:
    """Return the name of the histogram that a name of buckets, a sum or a count belongs to."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in BY_NAME and BY_NAME[base].kind == "histogram" else name


@pytest.mark.parametrize(
    "expression", [alert.expression for alert in ALERTS] + dashboard_expressions()
)
def test_each_metric_of_a_rule_or_of_the_dashboard_exists(expression: str) -> None:
    used = {base_name(name) for name in promql.names(promql.parse(expression))}
    assert used
    assert used - {"up"} <= BY_NAME.keys()


def test_the_dashboard_has_graphs_with_ids_and_places_of_their_own() -> None:
    panels = json.loads(dashboard())["panels"]
    graphs = [each for each in panels if each["type"] == "timeseries"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in graphs}
    assert len(places) == len(graphs)
    shown = [target["expr"] for each in graphs for target in each["targets"]]
    assert shown == dashboard_expressions()


# --- the operator's pages ------------------------------------------------------------------------
def first_cells(page: str, heading: str) -> list[str]:
    """Return the first cells of the tables below a heading; [""] if there is no table."""
    text = (ROOT / "docs" / page).read_text()
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert section, f"{page} has no heading {heading}"
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return [cell for cell in rows[2:] if cell != "0"] or [""]


def failure_of(page: str, heading: str, cell: str) -> list[Failure]:
    rows = [each for each in FAILURES if (each.page, each.heading) == (page, heading)]
    fitting = [each for each in rows if re.match(rf"{re.escape(each.cell)}(\W|$)", cell)]
    exact = [each for each in fitting if each.cell == cell]
    return exact or fitting


@pytest.mark.parametrize(
    ("page", "heading"), dict.fromkeys((each.page, each.heading) for each in FAILURES)
)
def test_each_failure_of_the_pages_has_an_alert(page: str, heading: str) -> None:
    cells = first_cells(page, heading)
    named = [failure_of(page, heading, cell) for cell in cells]
    assert all(named), [cell for cell, found in zip(cells, named, strict=True) if not found]
    rows = [each for each in FAILURES if (each.page, each.heading) == (page, heading)]
    assert {each for found in named for each in found} == set(rows), "a row of FAILURES is too old"


def test_each_failure_names_alerts_that_exist() -> None:
    names = {alert.name for alert in ALERTS}
    assert all(each.alerts and set(each.alerts) <= names for each in FAILURES)


# --- the evaluator -------------------------------------------------------------------------------
def history_of(*values: float | None, name: str = "m") -> History:
    history = History()
    for value in values:
        samples = None if value is None else {(name, NO_LABELS): value}
        history.record(a=Target(samples))
    return history


def result(history: History, expression: str) -> list[float]:
    found = promql.evaluate(promql.parse(expression), history, history.now_s)
    return list(found.values()) if isinstance(found, dict) else [found]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("m > 2", [3.0]),
        ("m > 3", []),
        ("m / m == 1", [1.0]),
        ("abs(m - 5) < 3", [2.0]),
        ("m * 2 + 3 - 1", [8.0]),
        ("sum(m)", [3.0]),
        ("sum by (job) (m and up)", [3.0]),
        ('m{instance="a"}', [3.0]),
        ('m{instance=~"b|c"}', []),
        ("m and nothing", []),
        ("timestamp(m)", [2.0 * INTERVAL_S]),
        ("increase(m[1m]) > 0", [4.0]),
        ("rate(m[5m])", [2 / 30]),
    ],
)
def test_the_forms_of_promql(expression: str, values: list[float]) -> None:
    assert result(history_of(1, 2, 3), expression) == pytest.approx(values)


@pytest.mark.parametrize(
    "expression",
    [
        "avg(m)",
        "m or m",
        "m unless m",
        "m offset 5m",
        "m and on (job) m",
        "m > bool 1",
        "max_over_time(m[5m])",
        "increase(m)",
        "rate(sum(m)[5m:])",
        "m @ 5",
        "sum without (a) (m)",
        'm{a!="b"}',
        "1 < m",
        "m[5m]",
        "m ^ 2",
        "-m",
    ],
)
def test_other_forms_of_promql_are_refused(expression: str) -> None:
    with pytest.raises(UnsupportedPromql):
        result(history_of(1, 2, 3), expression)


def test_a_series_that_its_target_lacks_is_stale() -> None:
    assert result(history_of(1, None), "m") == []
    assert result(history_of(1, None), "up") == [0]


def test_a_restarted_counter_has_not_fallen() -> None:
    assert result(history_of(5, 7, 1), "rate(m[5m]) * 30") == pytest.approx([3])


def test_a_quantile_is_interpolated_in_its_bucket() -> None:
    history = History()
    for counts in ((0, 0, 0), (0, 100, 100)):
        bounds = zip(("1", "2", "+Inf"), counts, strict=True)
        history.record(
            a=Target({("m_bucket", frozenset({("le", le)})): count for le, count in bounds})
        )
    assert result(history, "histogram_quantile(0.5, rate(m_bucket[5m]))") == [1.5]


def test_an_alert_fires_after_its_time_without_a_gap() -> None:
    (alert,) = (each for each in ALERTS if each.name == "KlogUnderReplicated")
    name = "kafka_server_replicamanager_underreplicatedpartitions"
    scrapes = alert.for_s // INTERVAL_S + 1
    assert alert.name in history_of(*[1] * scrapes, name=name).firing()
    assert alert.name not in history_of(*[1] * (scrapes - 1), name=name).firing()
    gap = [1, 0, *[1] * (scrapes - 1)]
    assert alert.name not in history_of(*gap, name=name).firing()
