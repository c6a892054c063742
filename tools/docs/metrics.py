"""Prints docs/metrics.md: how a broker is watched, and every metric."""

from klog_broker.monitoring.catalog import METRICS
from klog_broker.monitoring.scrapes import KEPT_MS

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit the rows in
     broker/klog_broker/monitoring/catalog.py, or the text in tools/docs/metrics.py,
     not this page. -->
# Metrics and health

A broker with `metrics.listener=127.0.0.1:9404` answers HTTP there; without the setting it does not.
Nobody is asked who they are, and topics' names and data directories are told: keep the port where
only your monitoring reaches it.

| path | answer |
|---|---|
| `/metrics` | all metrics, in Prometheus' text format |
| `/health` | 200 while the broker lives, with JSON: `state`, `offline_directories`, `loading` |
| `/ready` | the same, but 503 unless `state` is `ready` |

`state` is `loading` while partitions of a coordinator's topic load (`loading` has their number for
`groups` and `transactions`; their clients wait meanwhile, all others are served), `stopping` once
the broker was told to stop, and `ready` otherwise. A data directory that went offline is named, and
changes no state: the others serve, and another start would not bring it back by itself.

The port opens when the broker's other listeners do. While a start recovers logs nobody is answered
yet: let a probe of life wait for as long as that may take, as with Kubernetes' `startupProbe`.

```yaml
scrape_configs:
  - job_name: klog
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

One rendering is told to all who ask within {kept}: figures are that old at most. It is made in
pieces of 0.2 ms between the work for clients. A partition has four lines: 10,000 partitions make
3 MB, which take 45 ms of the broker's core in a second in which somebody asks. What need not be
kept is dropped by Prometheus (`metric_relabel_configs`).

Counters begin at 0 with the broker, and a topic's with the topic.

## What to alert on

| expression | says |
|---|---|
"""

_ALERTS = (
    ('up{job="klog"} == 0', "the broker does not answer"),
    (
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "partitions that take no records with acks=all: [too few replicas](clusters-of-brokers.md)",
    ),
    (
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        "for minutes: a broker is away or lags; the next loss may stop a partition",
    ),
    (
        "kafka_controller_kafkacontroller_offlinepartitionscount > 0",
        "partitions that nobody leads: their replicas in sync are away",
    ),
    (
        "sum(kafka_controller_kafkacontroller_activecontrollercount) != 1",
        "in a cluster, for minutes: nobody elects leaders",
    ),
    (
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "a disk failed: [its partitions are gone until a start](operations.md#when-the-disk-fails)",
    ),
    (
        "kafka_server_replicamanager_offlinereplicacount > 0",
        "partitions that cannot be served, also where one log alone failed",
    ),
    (
        'klog_coordinator_partitions{status="failed"} > 0',
        "groups or transactional ids without a coordinator; the broker's log says why",
    ),
    (
        "kafka_log_logcleanermanager_uncleanable_partitions_count > 0",
        "a log that grows: it is [compacted](compaction.md) no more",
    ),
    (
        "increase(klog_bugs_total[1h]) > 0",
        "a bug of klog: the log has its traceback (`logger=klog.bug`)",
    ),
    (
        "sum by (error) (rate(kafka_network_requestmetrics_errors_total"
        '{error=~"KAFKA_STORAGE_ERROR\\|UNKNOWN_SERVER_ERROR"}[5m])) > 0',
        "requests fail because of the broker; Produce with damaged compressed records counts, too, "
        "as with Kafka",
    ),
    (
        "rate(process_cpu_seconds_total[5m]) > 0.9",
        "the loop's core is used up; helper threads can bring it above 1",
    ),
    (
        "histogram_quantile(0.99, rate(klog_loop_turn_ms_bucket[5m])) > 25",
        "requests wait for the loop",
    ),
    (
        "process_open_fds / process_max_fds > 0.8",
        "[descriptors](operations.md#descriptors) run out",
    ),
)

_ALL = """
## All metrics

Where Kafka has the same thing the name is what the usual rules of Prometheus' JMX exporter make of
it, so that dashboards and alerts for Kafka find it. Kafka's names say `ms`, and so the histograms
are in milliseconds. They are whole histograms where the exporter has quantiles: use
`histogram_quantile`. As with the exporter, a sum over `topic` counts twice: the line without the
label is the sum.

| name | type | labels | |
|---|---|---|---|
"""


def metrics_page() -> str:
    """docs/metrics.md."""
    rows = (
        f"| `{row.name}` | {row.kind} | {', '.join(f'`{name}`' for name in row.labels)} |"
        f" {row.meaning} |"
        for row in METRICS
    )
    alerts = (f"| `{expression}` | {says} |" for expression, says in _ALERTS)
    head = _HEAD.format(kept=f"{KEPT_MS} ms")
    return "\n".join((head + "\n".join(alerts), _ALL + "\n".join(rows), ""))
