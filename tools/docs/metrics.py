"""Prints docs/metrics.md: how a broker is watched, and every metric."""

from klog_broker.monitoring.catalog import METRICS
from klog_broker.monitoring.health import MOST_NAMES
from klog_broker.monitoring.scrapes import CACHED_MS
from tools.docs.alerts import alert_table
from tools.docs.failures import failure_table

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit the rows in
     broker/klog_broker/monitoring/catalog.py, or the text in tools/docs/metrics.py,
     not this page. -->
# Metrics and health

Monitor a broker with Prometheus and health probes. The setting `metrics.listener` opens an HTTP
port:

```
klog broker --set metrics.listener=127.0.0.1:9404
```

```yaml
scrape_configs:
  - job_name: klog
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

The metrics port has no authentication, and its responses contain names of topics and data
directories: restrict the port to your monitoring.

| path | response |
|---|---|
| `/metrics` | all metrics, in Prometheus' text format |
| `/ready` | 200 if clients should use this broker, otherwise 503; the body is JSON |
| `/health` | the same body, always with 200: the process runs |

```json
{"state": "ready", "zookeeper_connected": true, "offline_directories": [], "full_directories": [],
 "affected_partitions": {"under_min_isr": {"count": 1, "partitions": ["orders-3"]}}}
```

| `state` | status of `/ready` | the broker |
|---|---|---|
| `starting` | 503 | loads its logs; in a cluster also until the controller has sent all \
partitions |
| `stopping` | 503 | stops; meanwhile other brokers of a cluster take over its partitions |
| `no-zookeeper-session` | 503 | has no connection to ZooKeeper, and cannot know whether its \
session has ended. It serves its present partitions |
| `no-usable-directory` | 503 | has no data directory that is online and above the floor of free \
disk space |
| `ready` | 200 | serves. `affected_partitions` names partitions that do not work |

A failure of some partitions does not change the state, because the others are served, and a restart
would not repair a disk. `affected_partitions` has for each kind of failure the number of partitions
on this broker and the names of the first {names}:

| kind | clients |
|---|---|
| `offline` | get KAFKA_STORAGE_ERROR: a disk or a log failed |
| `disk_full` | cannot write: the disk is [below its floor](operations.md#when-the-disk-fails) |
| `under_min_isr` | cannot write with acks=all: [too few replicas](clusters-of-brokers.md) are \
in sync |
| `coordinator_loading` | wait for their group or transactional id |
| `coordinator_failed` | cannot use their group or transactional id; the broker's log has the \
reason |

The metrics port opens first. While the broker loads and recovers logs, or waits for ZooKeeper,
`/ready` and `/health` have only the `state`, and `/metrics` answers 503.

The broker renders the metrics at most once in {kept}, in short steps between requests of clients.
Each partition has four lines in `/metrics`: 10,000 partitions make 3 MB and take 45 ms per scrape.
Drop metrics that you do not need with `metric_relabel_configs`.

Counters start at 0 when the broker starts. A topic's counters also start at 0 when the topic is
created.

## Alerts and dashboard

Prometheus loads the rules of [klog-alerts.yml](../monitoring/klog-alerts.yml) by `rule_files`. The
rules expect scrape jobs whose names begin with `klog`, one job for each cluster. Grafana imports
the dashboard [klog-dashboard.json](../monitoring/klog-dashboard.json). The
[runbook](runbook.md#alerts) says what to look at and what to do for each alert.

![The panels of the dashboard with ten minutes of a cluster](images/dashboard.png)

The chart shows the panels with the values of three brokers in Prometheus; broker 2 was killed after
six minutes and started again after eight. A [program](../tests/support/alerts/dashboard_chart.py)
has drawn it instead of Grafana.

| alert | severity, time | meaning | expression |
|---|---|---|---|
{alerts}

A failure that the operator's pages describe fires at least one of these alerts:

| page | failure | alerts |
|---|---|---|
{failures}
"""

_ALL = """
## All metrics

Metrics whose names begin with `kafka_` have the names that Prometheus' JMX exporter gives to
Kafka's metrics by its usual rules, so that dashboards and alerts for Kafka work. Histograms are in
milliseconds, since Kafka's names say `ms`, and have buckets where the JMX exporter has quantiles:
use `histogram_quantile`. Do not sum over the label `topic` of `kafka_server_brokertopicmetrics_*`:
the line without this label already is the sum, as with the exporter.

| name | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """docs/metrics.md."""
    rows = (
        f"| `{row.name}` | {row.kind} | {', '.join(f'`{name}`' for name in row.labels)} |"
        f" {row.meaning} |"
        for row in METRICS
    )
    head = _HEAD
    for name, text in (
        ("kept", f"{CACHED_MS} ms"),
        ("names", str(MOST_NAMES)),
        ("alerts", "\n".join(alert_table())),
        ("failures", "\n".join(failure_table())),
    ):
        head = head.replace("{" + name + "}", text)
    return head + _ALL + "\n".join(rows) + "\n"
