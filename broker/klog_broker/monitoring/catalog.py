"""Every metric, as a row: docs/metrics.md is printed from them, and they are told in this order.

Where Kafka has the same thing, the name is what the usual rules of Prometheus' JMX exporter make of
Kafka's: dashboards and alerts find it. All others begin with ``klog_``, or are named as
Prometheus' own clients name the facts of a process.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One family of samples."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


_PARTITION = ("topic", "partition")
_MS = "in ms; buckets from 0.1 ms to 30 s"

METRICS = (
    Metric("klog_build_info", "gauge", ("version",), "1, with klog's version."),
    Metric(
        "kafka_server_kafkaserver_brokerstate",
        "gauge",
        (),
        "By Kafka's numbers: 3 while the broker serves, 6 while it stops.",
    ),
    # --- requests ---
    Metric(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        ("request", "version"),
        "Requests that were answered, by API and version (`other`: versions not served, which"
        " ApiVersions alone answers).",
    ),
    Metric(
        "kafka_network_requestmetrics_errors_total",
        "counter",
        ("request", "error"),
        "Error codes in answers, by name; each of an answer counts. NONE is not told.",
    ),
    Metric(
        "kafka_network_requestmetrics_totaltimems",
        "histogram",
        ("request",),
        "From the turn in which a request had come whole to the end of the turn in which it was"
        f" answered, waiting included (acks=all, long polls, rebalances), {_MS}.",
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        (),
        "Open connections of clients.",
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_creation_total",
        "counter",
        (),
        "Connections that were accepted.",
    ),
    # --- topics ---
    Metric(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "counter",
        ("topic",),
        "Records appended; without a label all topics together, deleted ones too.",
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "counter",
        ("topic",),
        "Bytes of batches appended, likewise.",
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "counter",
        ("topic",),
        "Bytes of records in answers to Fetch, likewise.",
    ),
    Metric("kafka_log_log_size", "gauge", _PARTITION, "Bytes of a partition's segments."),
    Metric("kafka_log_log_logstartoffset", "gauge", _PARTITION, "The first offset."),
    Metric("kafka_log_log_logendoffset", "gauge", _PARTITION, "The offset behind the last record."),
    Metric("kafka_log_log_numlogsegments", "gauge", _PARTITION, "Segments of a partition."),
    # --- replicas ---
    Metric("kafka_server_replicamanager_partitioncount", "gauge", (), "Partitions hosted."),
    Metric("kafka_server_replicamanager_leadercount", "gauge", (), "Partitions led."),
    Metric(
        "kafka_server_replicamanager_offlinereplicacount",
        "gauge",
        (),
        "Replicas whose log is offline, or could not be made.",
    ),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        (),
        "Partitions led with fewer replicas in sync than assigned.",
    ),
    Metric(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "gauge",
        (),
        "Partitions led with fewer replicas in sync than min.insync.replicas: acks=all fails.",
    ),
    Metric(
        "kafka_server_replicamanager_isrexpands_total",
        "counter",
        (),
        "How often a replica of a partition that this broker leads came in sync again.",
    ),
    Metric(
        "kafka_server_replicamanager_isrshrinks_total",
        "counter",
        (),
        "How often replicas that had fallen behind left the in-sync set of such a partition.",
    ),
    Metric(
        "kafka_server_replicamanager_failedisrupdates_total",
        "counter",
        (),
        "How often the controller refused another in-sync set; most are asked for again.",
    ),
    Metric(
        "kafka_server_replicafetchermanager_maxlag",
        "gauge",
        ("clientid",),
        "The most records that one replica here lacks of those that its leader shows to clients"
        " (`Replica`); only in a cluster.",
    ),
    Metric(
        "klog_replica_fetcher_lag",
        "gauge",
        ("leader",),
        "Such records of all replicas here together, by the number of the broker that leads them.",
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "gauge",
        (),
        "On the controller: partitions without a leader. Others tell 0; one that runs alone those"
        " whose log is offline.",
    ),
    Metric(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
        (),
        "Whether the broker is the controller; one of a cluster is, and one that runs alone.",
    ),
    Metric("kafka_controller_kafkacontroller_globaltopiccount", "gauge", (), "Topics."),
    Metric("kafka_controller_kafkacontroller_globalpartitioncount", "gauge", (), "Partitions."),
    # --- logs ---
    Metric(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "gauge",
        (),
        "Data directories that are offline after a failure.",
    ),
    Metric(
        "kafka_log_logmanager_logdirectoryoffline",
        "gauge",
        ("logdirectory",),
        "Whether this data directory is offline.",
    ),
    Metric(
        "kafka_log_logflushstats_logflushrateandtimems",
        "histogram",
        (),
        f"Flushes of logs, from their plans to their outcomes, {_MS}.",
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        (),
        "Logs that the cleaner has set aside after a failure; the broker's log says why.",
    ),
    Metric(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "gauge",
        (),
        "Since the cleaner has finished a round; since the start if it has not.",
    ),
    Metric("klog_cleaner_rounds_total", "counter", (), "Rounds of the cleaner that were finished."),
    Metric("klog_cleaner_read_bytes_total", "counter", (), "Bytes of log that these have read."),
    Metric("klog_cleaner_kept_bytes_total", "counter", (), "Bytes that were left of them."),
    Metric("klog_cleaner_seconds_total", "counter", (), "How long these rounds took."),
    # --- waiting ---
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        ("delayedoperation",),
        "What waits: Produce for its flush or its replicas, Fetch for records, Coordinator and"
        " WriteTxnMarkers for their own records.",
    ),
    # --- coordinators ---
    Metric(
        "kafka_coordinator_group_groupmetadatamanager_numgroups", "gauge", (), "Groups, all states."
    ),
    *(
        Metric(
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
            "gauge",
            (),
            f"Groups in the state {state}.",
        )
        for state in ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
    ),
    Metric("klog_transactions", "gauge", ("state",), "Transactional ids by state."),
    Metric(
        "klog_coordinator_partitions",
        "gauge",
        ("topic", "status"),
        "Partitions of the coordinators' topics by status: loading, serving, failed.",
    ),
    # --- the broker and its process ---
    Metric(
        "klog_loop_turn_ms",
        "histogram",
        (),
        "How long the turns of the broker's loop take, without their sleep: what a request waits"
        f" at least, {_MS}.",
    ),
    Metric("klog_events_total", "counter", ("event",), "What is rare, by name."),
    Metric("klog_bugs_total", "counter", (), "Requests that met a bug of the broker."),
    Metric("process_cpu_seconds_total", "counter", (), "User and system time of the process."),
    Metric("process_resident_memory_bytes", "gauge", (), "Linux alone, as all lines below."),
    Metric("process_virtual_memory_bytes", "gauge", (), "Address space of the process."),
    Metric("process_open_fds", "gauge", (), "Descriptors in use; since Linux 6.2."),
    Metric("process_max_fds", "gauge", (), "Descriptors that the process may have."),
    Metric("process_start_time_seconds", "gauge", (), "When the broker began, since 1970."),
)

BY_NAME = {row.name: row for row in METRICS}
