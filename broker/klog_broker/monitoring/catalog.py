"""All metrics, one row each, in the order of docs/metrics.md, which is printed from the rows.

A metric that Kafka has too has the name that the usual rules of Prometheus' JMX exporter give it,
so that dashboards and alerts for Kafka find it. All others begin with ``klog_``, or have the names
that Prometheus' own clients use for a process.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """A metric family: all samples with the same name."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


_PARTITION = ("topic", "partition")
_MS = "in ms; buckets from 0.1 ms to 30 s"

METRICS = (
    Metric("klog_build_info", "gauge", ("version",), "Always 1; the label has klog's version."),
    Metric(
        "kafka_server_kafkaserver_brokerstate",
        "gauge",
        (),
        "The broker's state as Kafka's number: 1 while it starts, 3 while it serves, 6 while it"
        " stops.",
    ),
    # --- metrics of requests ---
    Metric(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        ("request", "version"),
        "Answered requests, by API and version (`other`: a version that klog does not serve, which"
        " only ApiVersions answers).",
    ),
    Metric(
        "kafka_network_requestmetrics_errors_total",
        "counter",
        ("request", "error"),
        "Error codes in responses, by name. Each error code of a response counts, except NONE.",
    ),
    Metric(
        "kafka_network_requestmetrics_totaltimems",
        "histogram",
        ("request",),
        "Time from the event-loop turn that received all of a request to the end of the turn that"
        f" answered it, including all waiting (acks=all, long polls, rebalances), {_MS}.",
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        (),
        "Open client connections.",
    ),
    Metric(
        "klog_max_connections",
        "gauge",
        (),
        "The most open client connections: max.connections, or fewer if `ulimit -n` allows fewer."
        " At the limit, new connections wait until one closes.",
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_creation_total",
        "counter",
        (),
        "Accepted client connections.",
    ),
    # --- metrics of topics ---
    Metric(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "counter",
        ("topic",),
        "Appended records; without a label, of all topics together, including deleted topics.",
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "counter",
        ("topic",),
        "Bytes of appended batches; without a label, of all topics, including deleted topics.",
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "counter",
        ("topic",),
        "Bytes of records in Fetch responses; without a label, of all topics, including deleted"
        " topics.",
    ),
    Metric("kafka_log_log_size", "gauge", _PARTITION, "Bytes of a partition's segments."),
    Metric("kafka_log_log_logstartoffset", "gauge", _PARTITION, "Log start offset of a partition."),
    Metric("kafka_log_log_logendoffset", "gauge", _PARTITION, "Log end offset of a partition."),
    Metric("kafka_log_log_numlogsegments", "gauge", _PARTITION, "Segments of a partition."),
    # --- metrics of replicas ---
    Metric("kafka_server_replicamanager_partitioncount", "gauge", (), "Replicas on this broker."),
    Metric(
        "kafka_server_replicamanager_leadercount", "gauge", (), "Partitions that this broker leads."
    ),
    Metric(
        "kafka_server_replicamanager_offlinereplicacount",
        "gauge",
        (),
        "Replicas on this broker whose log is offline, or could not be created.",
    ),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        (),
        "Led partitions with fewer in-sync replicas than assigned replicas.",
    ),
    Metric(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "gauge",
        (),
        "Led partitions with fewer in-sync replicas than min.insync.replicas: acks=all fails.",
    ),
    Metric(
        "kafka_server_replicamanager_isrexpands_total",
        "counter",
        (),
        "How often the ISR of a partition that this broker leads has grown.",
    ),
    Metric(
        "kafka_server_replicamanager_isrshrinks_total",
        "counter",
        (),
        "How often the ISR of a partition that this broker leads has shrunk.",
    ),
    Metric(
        "kafka_server_replicamanager_failedisrupdates_total",
        "counter",
        (),
        "How often the controller refused an ISR change; the broker requests most of them again.",
    ),
    Metric(
        "kafka_server_replicafetchermanager_maxlag",
        "gauge",
        ("clientid",),
        "The highest lag of a replica on this broker (`Replica`), in records below its leader's"
        " high watermark; 0 on a standalone broker.",
    ),
    Metric(
        "klog_replica_fetcher_lag",
        "gauge",
        ("leader",),
        "The lag of all replicas on this broker together, by the id of their leader.",
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "gauge",
        (),
        "On the controller: partitions without a leader; on other brokers 0. On a standalone"
        " broker: partitions whose log is offline.",
    ),
    Metric(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
        (),
        "1 on the controller of a cluster and on a standalone broker, otherwise 0.",
    ),
    Metric("kafka_controller_kafkacontroller_globaltopiccount", "gauge", (), "Known topics."),
    Metric(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "gauge",
        (),
        "Partitions of all known topics.",
    ),
    Metric(
        "kafka_controller_kafkacontroller_topicstodeletecount",
        "gauge",
        (),
        "On the controller and on a standalone broker: topics whose deletion is not finished,"
        " because it waits for a broker or a disk.",
    ),
    # --- metrics of the controller; only brokers in a cluster have them ---
    Metric(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "gauge",
        (),
        "Events that wait for the controller.",
    ),
    Metric(
        "kafka_controller_controllereventmanager_eventqueuetimems",
        "histogram",
        (),
        f"How long events waited until the controller began them, {_MS}.",
    ),
    Metric(
        "klog_controller_events_total",
        "counter",
        ("event",),
        "Events that this broker has carried out as the controller: changes in ZooKeeper, requests"
        " and responses of brokers, by name.",
    ),
    Metric(
        "klog_controller_event_seconds_total",
        "counter",
        ("event",),
        "Duration of these events, including their writes to ZooKeeper.",
    ),
    Metric(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        "histogram",
        (),
        f"Duration of the controller's events that elected leaders, {_MS}.",
    ),
    Metric(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "counter",
        (),
        "Leaders that this broker, as the controller, elected although they were not in the ISR:"
        " records may be lost.",
    ),
    Metric(
        "klog_elected_leaders_total",
        "counter",
        ("reason",),
        "Leaders that this broker elected as the controller, by reason.",
    ),
    # --- metrics of the ZooKeeper session; only brokers in a cluster have them ---
    Metric(
        "klog_zookeeper_session_connected",
        "gauge",
        (),
        "1 while a ZooKeeper server serves the broker's session, otherwise 0.",
    ),
    Metric(
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total",
        "counter",
        (),
        "How often a session has connected to a ZooKeeper server.",
    ),
    Metric(
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        "counter",
        (),
        "How often a session has lost its connection to ZooKeeper.",
    ),
    Metric(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "counter",
        (),
        "How often ZooKeeper has ended the broker's session, so that other replicas became"
        " leaders.",
    ),
    # --- metrics of logs ---
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
        "1 if this data directory is offline, otherwise 0.",
    ),
    Metric(
        "klog_metadata_file_failed",
        "gauge",
        (),
        "1 if klog-metadata could not be written, so that topics and settings cannot change until"
        " the broker restarts, otherwise 0.",
    ),
    Metric(
        "klog_log_directory_free_bytes",
        "gauge",
        ("logdirectory",),
        "Free disk space of an online data directory, measured about every second; without a floor"
        " at the scrape before.",
    ),
    Metric(
        "klog_log_directory_total_bytes",
        "gauge",
        ("logdirectory",),
        "Size of the data directory's disk.",
    ),
    Metric(
        "klog_log_directory_min_free_bytes",
        "gauge",
        ("logdirectory",),
        "The floor of free disk space, log.dir.min.free.bytes.",
    ),
    Metric(
        "klog_log_directory_refuses_records",
        "gauge",
        ("logdirectory",),
        "1 while a data directory refuses records of clients because its free disk space is below"
        " the floor, otherwise 0.",
    ),
    Metric(
        "klog_log_directory_refuses_state",
        "gauge",
        ("logdirectory",),
        "1 while it refuses writes of coordinators and followers, too, otherwise 0.",
    ),
    Metric(
        "kafka_log_logflushstats_logflushrateandtimems",
        "histogram",
        (),
        f"Duration of log flushes, from planning to completion, {_MS}.",
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        (),
        "Logs that the cleaner skips after a failure; the broker's log has the reason.",
    ),
    Metric(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "gauge",
        (),
        "Time since the cleaner last looked for a log to clean; it looks every"
        " log.cleaner.backoff.ms, except while log.cleaner.threads rounds run.",
    ),
    Metric("klog_cleaner_rounds_total", "counter", (), "Finished rounds of the cleaner."),
    Metric("klog_cleaner_read_bytes_total", "counter", (), "Bytes of logs that these rounds read."),
    Metric("klog_cleaner_kept_bytes_total", "counter", (), "Bytes of logs that these rounds kept."),
    Metric("klog_cleaner_seconds_total", "counter", (), "Duration of these rounds."),
    # --- metrics of delayed operations ---
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        ("delayedoperation",),
        "Delayed operations: Produce waits for its flush or its replicas, Fetch for records,"
        " Coordinator and WriteTxnMarkers for their own records, DeleteRecords for followers.",
    ),
    # --- metrics of coordinators ---
    Metric(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "gauge",
        (),
        "Groups in all states.",
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
    # --- metrics of the broker and its process ---
    Metric(
        "klog_loop_turn_ms",
        "histogram",
        (),
        "Duration of event-loop turns without their sleep: the least time that a request waits,"
        f" {_MS}.",
    ),
    Metric("klog_events_total", "counter", ("event",), "Rare events, by name."),
    Metric(
        "klog_bugs_total",
        "counter",
        (),
        "Bugs of the broker that were caught; the broker's log has their tracebacks.",
    ),
    Metric("process_cpu_seconds_total", "counter", (), "User and system time of the process."),
    Metric(
        "process_resident_memory_bytes", "gauge", (), "Resident memory of the process; Linux only."
    ),
    Metric(
        "process_virtual_memory_bytes", "gauge", (), "Address space of the process; Linux only."
    ),
    Metric("process_open_fds", "gauge", (), "Open file descriptors; Linux 6.2 and later."),
    Metric("process_max_fds", "gauge", (), "Limit of open file descriptors."),
    Metric(
        "process_start_time_seconds",
        "gauge",
        (),
        "Start time of the broker, in seconds since 1970.",
    ),
    Metric(
        "klog_clock_seconds",
        "gauge",
        (),
        "The broker's wall clock, in seconds since 1970.",
    ),
)

BY_NAME = {row.name: row for row in METRICS}

ONLY_IN_CLUSTER = frozenset(
    row.name
    for row in METRICS
    if row.name.startswith(
        (
            "kafka_controller_controller",
            "kafka_server_sessionexpirelistener_",
            "klog_controller_",
            "klog_elected_leaders_",
            "klog_replica_fetcher_lag",
            "klog_zookeeper_",
        )
    )
)
"""The names of the metrics that a standalone broker does not have."""
