"""The text of metrics as Prometheus' own parser reads it, and the page that lists them."""

from prometheus_client.parser import text_string_to_metric_families

from klog_broker.metrics.histogram import BOUNDS_MS, Durations
from klog_broker.monitoring.catalog import BY_NAME, METRICS
from klog_broker.monitoring.text import MetricsText, labels

FLUSHES = "kafka_log_logflushstats_logflushrateandtimems"
TIMES = "kafka_network_requestmetrics_totaltimems"
OFFLINE = "kafka_log_logmanager_logdirectoryoffline"


def test_names_are_distinct_and_fit_their_kinds() -> None:
    assert len(BY_NAME) == len(METRICS)
    for row in METRICS:
        assert (row.kind == "counter") == row.name.endswith("_total"), row.name
        assert row.meaning.endswith("."), row.name


def test_whatever_stands_in_a_label_is_read_back() -> None:
    text = MetricsText()
    names = ['/a "b"', "/back\\slash", "/two\nlines", "/ä{}=,"]
    text.family(OFFLINE, {labels(logdirectory=name): at for at, name in enumerate(names)})
    (family,) = text_string_to_metric_families(b"".join(text.finish()).decode())
    assert [(each.labels["logdirectory"], each.value) for each in family.samples] == [
        (name, at) for at, name in enumerate(names)
    ]


def test_a_histograms_buckets_have_what_is_below_them() -> None:
    durations = Durations()
    for took_ms in (0.1, 0.2, 3, 3, 99_999):
        durations.add(round(took_ms * 1e6))
    text = MetricsText()
    text.histogram(FLUSHES, {"": durations.row})
    text.histogram(
        TIMES, {labels(request="Fetch"): durations.row, labels(request="X"): durations.row}
    )
    flushes, times = text_string_to_metric_families(b"".join(text.finish()).decode())
    assert (flushes.type, times.type) == ("histogram", "histogram")
    counts = {
        sample.labels["le"]: sample.value
        for sample in flushes.samples
        if sample.name == f"{FLUSHES}_bucket"
    }
    assert list(counts) == [*(f"{bound:g}" for bound in BOUNDS_MS), "+Inf"]
    assert (counts["0.1"], counts["0.25"], counts["2.5"], counts["5"]) == (1, 2, 2, 4)
    assert (counts["30000"], counts["+Inf"]) == (4, 5)
    others = {sample.name: sample.value for sample in flushes.samples}
    assert others[f"{FLUSHES}_count"] == 5
    assert others[f"{FLUSHES}_sum"] == 100_005.3
    assert {sample.labels["request"] for sample in times.samples} == {"Fetch", "X"}


def test_a_long_text_comes_in_parts_of_whole_lines() -> None:
    text = MetricsText()
    name = "kafka_log_log_size"
    text.head(name)
    for partition in range(3000):
        text.lines([f'{name}{{topic="t",partition="{partition}"}} {partition}'])
    parts = text.finish()
    assert len(parts) > 5 and all(part.endswith(b"\n") for part in parts)
    (family,) = text_string_to_metric_families(b"".join(parts).decode())
    assert [sample.value for sample in family.samples] == list(range(3000))
