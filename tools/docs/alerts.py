"""Prints monitoring/klog-alerts.yml, Prometheus' alert rules for klog, from the rows below."""

import json
from collections.abc import Iterable
from typing import Literal, NamedTuple

Severity = Literal["critical", "warning"]


class Alert(NamedTuple):
    """An alert rule. `expression` is PromQL; `for_s` is for how long its result must not be empty
    until the alert fires, in seconds."""

    name: str
    expression: str
    for_s: int
    severity: Severity
    summary: str


_MINUTE = 60
_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_DIRECTORY = "klog_log_directory"
_CLEANER = "kafka_log_logcleanermanager"
_SOCKETS = "kafka_server_socket_server_metrics"

ALERTS = (
    # --- brokers and their cluster ---
    Alert(
        "KlogBrokerDown",
        'up{job=~"klog.*"} == 0',
        _MINUTE,
        "critical",
        "The broker does not answer: it was stopped or killed, or it refuses to start.",
    ),
    Alert(
        "KlogNoZooKeeperSession",
        "klog_zookeeper_session_connected == 0",
        _MINUTE,
        "critical",
        "The broker is not connected to ZooKeeper: leaders, ISRs and topics cannot change.",
    ),
    Alert(
        "KlogZooKeeperSessionExpired",
        "increase(kafka_server_sessionexpirelistener_zookeeperexpires_total[15m]) > 0",
        0,
        "warning",
        "ZooKeeper has ended the broker's session, and other replicas became leaders.",
    ),
    Alert(
        "KlogNoController",
        f"sum by (job) ({_CONTROLLER}_activecontrollercount and klog_zookeeper_session_connected)"
        " != 1",
        2 * _MINUTE,
        "critical",
        "The cluster has no controller, or more than one: no leaders are elected.",
    ),
    Alert(
        "KlogPartitionOffline",
        f"{_CONTROLLER}_offlinepartitionscount > 0",
        _MINUTE,
        "critical",
        "Partitions have no leader, or on a standalone broker their logs are offline.",
    ),
    Alert(
        "KlogUncleanElection",
        "increase(kafka_controller_controllerstats_uncleanleaderelections_total[15m]) > 0",
        0,
        "critical",
        "Replicas that were not in sync became leaders: acknowledged records may be lost.",
    ),
    Alert(
        "KlogUnderMinIsr",
        f"{_REPLICAS}_underminisrpartitioncount > 0",
        _MINUTE,
        "critical",
        "Partitions refuse acks=all, because fewer replicas than min.insync.replicas are in sync.",
    ),
    Alert(
        "KlogUnderReplicated",
        f"{_REPLICAS}_underreplicatedpartitions > 0",
        5 * _MINUTE,
        "warning",
        "Replicas are not in sync: a broker is down or a follower lags.",
    ),
    Alert(
        "KlogTopicDeletionWaits",
        f"{_CONTROLLER}_topicstodeletecount > 0",
        30 * _MINUTE,
        "warning",
        "The deletion of a topic waits for a broker or a disk; `klog topics list` names the topic.",
    ),
    # --- disks and logs ---
    Alert(
        "KlogDirectoryOffline",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        0,
        "critical",
        "A disk failed: the partitions of its data directory are not served.",
    ),
    Alert(
        "KlogReplicaOffline",
        f"{_REPLICAS}_offlinereplicacount > 0",
        _MINUTE,
        "critical",
        "Replicas cannot be served: their disk or their log failed, or the log was not created.",
    ),
    Alert(
        "KlogDiskBelowFloor",
        f"{_DIRECTORY}_refuses_records == 1",
        0,
        "critical",
        "The disk has less free space than log.dir.min.free.bytes: clients cannot write.",
    ),
    Alert(
        "KlogDiskFills",
        f"{_DIRECTORY}_free_bytes / {_DIRECTORY}_total_bytes < 0.1",
        10 * _MINUTE,
        "warning",
        "Less than a tenth of the disk is free.",
    ),
    Alert(
        "KlogMetadataFailed",
        "klog_metadata_file_failed == 1",
        0,
        "critical",
        "klog-metadata could not be written: topics and settings cannot change until a restart.",
    ),
    Alert(
        "KlogStorageErrors",
        "sum by (job, instance, error) (rate(kafka_network_requestmetrics_errors_total"
        '{error=~"KAFKA_STORAGE_ERROR|UNKNOWN_SERVER_ERROR"}[5m])) > 0',
        0,
        "warning",
        "Requests fail because of the broker, or of damaged compressed records in them.",
    ),
    Alert(
        "KlogNotCompacted",
        f"{_CLEANER}_uncleanable_partitions_count > 0",
        0,
        "warning",
        "The log cleaner has set logs aside, which grow now; the broker's log has the reason.",
    ),
    Alert(
        "KlogCleanerStuck",
        f"{_CLEANER}_time_since_last_run_ms > 3600000",
        0,
        "warning",
        "The log cleaner has worked on the same logs for an hour.",
    ),
    # --- the broker's process ---
    Alert(
        "KlogCoordinatorFailed",
        'klog_coordinator_partitions{status="failed"} > 0',
        _MINUTE,
        "critical",
        "Groups or transactional ids have no coordinator; the broker's log has the reason.",
    ),
    Alert(
        "KlogBug",
        "increase(klog_bugs_total[1h]) > 0",
        0,
        "warning",
        "A bug of klog: the broker's log has its traceback (logger=klog.bug).",
    ),
    Alert(
        "KlogConnectionsRunOut",
        f"{_SOCKETS}_connection_count / klog_max_connections > 0.9",
        _MINUTE,
        "warning",
        "Nine tenths of the allowed connections are open; at the limit new clients wait.",
    ),
    Alert(
        "KlogDescriptorsRunOut",
        "process_open_fds / process_max_fds > 0.8",
        _MINUTE,
        "warning",
        "File descriptors run out: raise `ulimit -n`.",
    ),
    Alert(
        "KlogClockWrong",
        "abs(klog_clock_seconds - timestamp(klog_clock_seconds)) > 60",
        _MINUTE,
        "critical",
        "The broker's clock differs from Prometheus' by more than a minute: retention may delete"
        " data.",
    ),
    Alert(
        "KlogEventLoopBusy",
        "rate(process_cpu_seconds_total[5m]) > 0.9",
        15 * _MINUTE,
        "warning",
        "The event loop's core is busy: use more brokers. Helper threads can raise the value"
        " above 1.",
    ),
    Alert(
        "KlogTurnsSlow",
        "histogram_quantile(0.99, rate(klog_loop_turn_ms_bucket[5m])) > 25",
        15 * _MINUTE,
        "warning",
        "Requests wait for the event loop.",
    ),
)

_HEAD = """\
# Alert rules of Prometheus for klog brokers; docs/metrics.md explains them.
# Printed by `./dev python -m tools.docs`; edit the rows in tools/docs/alerts.py, not this file.
# The rules expect scrape jobs whose names begin with klog, one job for each cluster.
groups:
  - name: klog
    rules:
"""


def alert_rules() -> str:
    """monitoring/klog-alerts.yml."""
    return _HEAD + "".join(_rule(each) for each in ALERTS)


def _rule(alert: Alert) -> str:
    # A JSON string is also a YAML string.
    lines = [f"      - alert: {alert.name}", f"        expr: {json.dumps(alert.expression)}"]
    if alert.for_s:
        lines.append(f"        for: {duration(alert.for_s)}")
    lines += [f"        labels: {{severity: {alert.severity}}}", "        annotations:"]
    lines += [
        f"          {name}: {json.dumps(text)}" for name, text in alert_annotations(alert).items()
    ]
    return "\n".join((*lines, ""))


def alert_annotations(alert: Alert) -> dict[str, str]:
    """Return the annotations of the alert in Prometheus."""
    return {"summary": alert.summary, "runbook": "docs/runbook.md#alerts"}


def duration(seconds: int) -> str:
    """Return whole minutes as Prometheus writes them: 5m."""
    assert seconds % _MINUTE == 0
    return f"{seconds // _MINUTE}m"


def alert_table() -> Iterable[str]:
    """Return the rows of the table of alerts in docs/metrics.md."""
    for alert in ALERTS:
        expression = alert.expression.replace("|", r"\|")
        lasts = f", for {duration(alert.for_s)}" if alert.for_s else ""
        yield f"| `{alert.name}` | {alert.severity}{lasts} | {alert.summary} | `{expression}` |"
