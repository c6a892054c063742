"""Prints docs/metrics.md: how a broker is watched, and every metric."""

from klog_broker.monitoring.catalog import METRICS
from klog_broker.monitoring.health import MOST_NAMES
from klog_broker.monitoring.scrapes import CACHED_MS

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
| `starting` | 503 | is about to serve; in a cluster also until the controller has sent all \
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

The metrics port opens together with the other listeners, after the recovery of logs; until then it
refuses connections. Give liveness probes enough time, for example with Kubernetes' `startupProbe`.

The broker renders the metrics at most once in {kept}, in short steps between requests of clients.
Each partition has four lines in `/metrics`: 10,000 partitions make 3 MB and take 45 ms per scrape.
Drop metrics that you do not need with `metric_relabel_configs`.

Counters start at 0 when the broker starts. A topic's counters also start at 0 when the topic is
created.

## What to alert on

| expression | meaning |
|---|---|
"""

_ALERTS = (
    ('up{job="klog"} == 0', "the broker does not answer"),
    (
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "partitions that refuse acks=all: [too few replicas](clusters-of-brokers.md)",
    ),
    (
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        "if for minutes: a broker is down or lags, and the next loss may stop a partition",
    ),
    (
        "kafka_controller_kafkacontroller_offlinepartitionscount > 0",
        "partitions without a leader: their in-sync replicas are down",
    ),
    (
        "sum(kafka_controller_kafkacontroller_activecontrollercount) != 1",
        "in a cluster, if for minutes: there is no controller to elect leaders",
    ),
    (
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "a disk failed: [its partitions are not served](operations.md#when-the-disk-fails)",
    ),
    (
        "kafka_server_replicamanager_offlinereplicacount > 0",
        "partitions that cannot be served, also because a single log failed",
    ),
    (
        'klog_coordinator_partitions{status="failed"} > 0',
        "groups or transactional ids without a coordinator; the broker's log has the reason",
    ),
    (
        "kafka_log_logcleanermanager_uncleanable_partitions_count > 0",
        "a log grows because it is no longer [compacted](compaction.md)",
    ),
    (
        "increase(klog_bugs_total[1h]) > 0",
        "a bug of klog: the log has its traceback (`logger=klog.bug`)",
    ),
    (
        "sum by (error) (rate(kafka_network_requestmetrics_errors_total"
        '{error=~"KAFKA_STORAGE_ERROR\\|UNKNOWN_SERVER_ERROR"}[5m])) > 0',
        "requests fail because of the broker; as in Kafka, also Produce requests with damaged "
        "compressed records",
    ),
    (
        "rate(process_cpu_seconds_total[5m]) > 0.9",
        "the event loop's core is busy; helper threads can raise the value above 1",
    ),
    (
        "histogram_quantile(0.99, rate(klog_loop_turn_ms_bucket[5m])) > 25",
        "requests wait for the event loop",
    ),
    (
        "process_open_fds / process_max_fds > 0.8",
        "[descriptors](operations.md#descriptors) run out",
    ),
)

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
    alerts = (f"| `{expression}` | {says} |" for expression, says in _ALERTS)
    head = _HEAD.replace("{kept}", f"{CACHED_MS} ms").replace("{names}", str(MOST_NAMES))
    return "\n".join((head + "\n".join(alerts), _ALL + "\n".join(rows), ""))
