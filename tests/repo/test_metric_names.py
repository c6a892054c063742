"""Every metric that the docs and monitoring/ name is one of the broker or of klog lake."""

import re
from pathlib import Path

import pytest

from klog_broker.cli.lake.metrics import METRICS as LAKE_METRICS
from klog_broker.monitoring.catalog import BY_NAME, METRICS
from tests.support.repo.documents import ROOT, project_files

# Names that begin like a metric's: packages, fixtures, suites of ./dev peers, parts of file names.
_OTHER_NAMES = {
    *("klog_broker", "klog_topic", "klog_only"),
    *("kafka_streams", "kafka_connect", "kafka_cleanshutdown"),
}
_FAMILIES = {"kafka_server_brokertopicmetrics_"}
"""The docs also name these metrics by their common beginning and a star."""
FILES = [
    ROOT / name
    for name in project_files()
    if name.startswith("monitoring/")
    or (name.endswith(".md") and not name.startswith("docs/decisions/"))
]


def unknown_metrics(text: str) -> set[str]:
    """Return the names in a text that look like a metric's, but are not in the catalog."""
    known = _OTHER_NAMES | BY_NAME.keys() | LAKE_METRICS.keys()
    for row in METRICS:
        if row.kind == "histogram":
            known |= {f"{row.name}_{part}" for part in ("bucket", "sum", "count")}
    for family in _FAMILIES:
        text = text.replace(f"{family}*", "")
    return set(re.findall(r"\b(?:kafka|klog|process)_[A-Za-z0-9_]+", text)) - known


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_metric_that_a_page_names_exists(file: Path) -> None:
    assert unknown_metrics(file.read_text(encoding="utf-8")) == set()


def test_an_unknown_metric_is_found() -> None:
    known = "`klog_loop_turn_ms_bucket`, kafka_log_log_size{topic}, and klog_build_info."
    assert unknown_metrics(known) == set()
    text = "`klog_loop_turn`, kafka_log_log_size_sum and kafka_server_KafkaServer_BrokerState"
    assert unknown_metrics(f"{known} {text}") == {
        *("klog_loop_turn", "kafka_log_log_size_sum", "kafka_server_KafkaServer_BrokerState"),
    }


def test_the_common_beginnings_are_those_of_metrics() -> None:
    for family in _FAMILIES:
        assert any(name.startswith(family) for name in BY_NAME)
