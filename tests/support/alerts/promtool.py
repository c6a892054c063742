"""Gives histories of scrapes to promtool, Prometheus' own evaluator of alert rules."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from tests.support.alerts import promql
from tests.support.alerts.history import INTERVAL_S, History
from tests.support.repo.documents import ROOT
from tools.docs.alerts import ALERTS, Alert, alert_annotations

RULES = ROOT / "monitoring" / "klog-alerts.yml"
_PACKAGE = ROOT / ".peers" / "prometheus"
_STALE = "stale"


def find_promtool() -> str:
    """Return the path of promtool, Prometheus' tool for rules."""
    return _find_program("promtool")


def find_prometheus() -> str:
    """Return the path of Prometheus' server."""
    return _find_program("prometheus")


def _find_program(name: str) -> str:
    """Return the path of a program: the one on PATH, or that of Debian's package, which is fetched
    once. The package is not installed, because it would start a server."""
    found = shutil.which(name)
    fetched = _PACKAGE / "usr" / "bin" / name
    if found is None and not fetched.exists():
        _fetch_package()
    return found or str(fetched)


def _fetch_package() -> None:
    _PACKAGE.mkdir(parents=True, exist_ok=True)
    options = ("-o", "APT::Sandbox::User=root", "-qq")
    subprocess.run(["apt-get", *options, "download", "prometheus"], cwd=_PACKAGE, check=True)
    (package,) = _PACKAGE.glob("prometheus_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(_PACKAGE)], check=True)
    package.unlink()


def run_promtool(*arguments: str) -> str:
    """Run promtool; return its output, or raise AssertionError with the output if it fails."""
    done = subprocess.run(
        [find_promtool(), *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def promtool_file(histories: Mapping[str, History]) -> str:
    """Return a file for `promtool test rules`: at the end of each history promtool must find the
    same firing alerts, with the same labels, as our evaluator."""
    # A JSON text is also a YAML text.
    return json.dumps(
        {
            "rule_files": [str(RULES)],
            "evaluation_interval": f"{INTERVAL_S}s",
            "tests": [_test(name, each) for name, each in histories.items()],
        },
        indent=1,
    )


def _test(name: str, history: History) -> dict[str, Any]:
    used = {each for alert in ALERTS for each in promql.names(promql.parse(alert.expression))}
    return {
        "name": name,
        "interval": f"{INTERVAL_S}s",
        "input_series": [
            {"series": _series(of, labels), "values": " ".join(_values(values))}
            for (of, labels), values in history.series.items()
            if of in used
        ],
        "alert_rule_test": [
            {
                "eval_time": f"{history.now_s:.0f}s",
                "alertname": alert.name,
                "exp_alerts": _expected(alert, history),
            }
            for alert in ALERTS
        ],
    }


def _expected(alert: Alert, history: History) -> list[dict[str, Any]]:
    return [
        {
            "exp_labels": {**dict(labels), "severity": alert.severity},
            "exp_annotations": alert_annotations(alert),
        }
        for labels in history.firing().get(alert.name, [])
    ]


def _series(name: str, labels: promql.Labels) -> str:
    pairs = (f"{label}={json.dumps(value)}" for label, value in sorted(labels))
    return f"{name}{{{','.join(pairs)}}}"


def _values(values: Iterable[float | None]) -> Iterator[str]:
    """Yield the samples in promtool's notation, in which `5+0x3` is four times 5, and `_` no
    sample. As at a real scrape, a series is stale once its target lacks it."""
    had_value = False
    for value, repeated in groupby(values):
        count = len(list(repeated))
        if value is not None:
            yield f"{value!r}+0x{count - 1}"
        elif had_value:
            yield f"{_STALE} _x{count - 1}" if count > 1 else _STALE
        else:
            yield f"_x{count}"
        had_value = value is not None
