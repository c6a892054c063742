"""The rows of monitoring/klog-dashboard.json: sections, graphs and expressions.

In an expression, `OF` stands for the job and the instances that the user has chosen.
"""

from typing import NamedTuple

_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_STATS = "kafka_controller_controllerstats"
_EVENTS = "kafka_controller_controllereventmanager"
_SESSION = "kafka_server_sessionexpirelistener_zookeeper"
_TOPICS = "kafka_server_brokertopicmetrics"
_REQUESTS = "kafka_network_requestmetrics"
_CLEANER = "kafka_log_logcleanermanager"
_DIRECTORY = "klog_log_directory"
_SOCKETS = "kafka_server_socket_server_metrics_connection"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_TURNS = "klog_loop_turn_ms_bucket{OF}"
_FLUSHES = "kafka_log_logflushstats_logflushrateandtimems_bucket{OF}"


class Query(NamedTuple):
    """A line of a graph: its expression, and the text of its legend."""

    expression: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    """A graph with its unit, by the name that Grafana has for the unit."""

    title: str
    unit: str
    queries: tuple[Query, ...]


class Section(NamedTuple):
    """A row of the dashboard, with a title, and its graphs."""

    title: str
    panels: tuple[Panel, ...]


def _quantile(quantile: str, buckets: str, *, by: str = "instance") -> str:
    return f"histogram_quantile({quantile}, sum by (le, {by}) (rate({buckets}[5m])))"


def _rate(counter: str, *, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({counter}[5m]))"


SECTIONS = (
    Section(
        "Brokers",
        (
            Panel("Brokers that answer", "short", (Query("up{OF}"),)),
            Panel(
                "State (1 starting, 3 serving, 6 stopping)",
                "short",
                (Query("kafka_server_kafkaserver_brokerstate{OF}"),),
            ),
            Panel("Controller", "short", (Query(f"{_CONTROLLER}_activecontrollercount{{OF}}"),)),
            Panel(
                "Partitions that do not work",
                "short",
                (
                    Query(f"{_CONTROLLER}_offlinepartitionscount{{OF}}", "no leader, {{instance}}"),
                    Query(f"{_REPLICAS}_offlinereplicacount{{OF}}", "offline, {{instance}}"),
                    Query(
                        f"{_REPLICAS}_underminisrpartitioncount{{OF}}",
                        "below min.insync.replicas, {{instance}}",
                    ),
                    Query(
                        f"{_REPLICAS}_underreplicatedpartitions{{OF}}",
                        "under-replicated, {{instance}}",
                    ),
                ),
            ),
            Panel(
                "Partitions led and hosted",
                "short",
                (
                    Query(f"{_REPLICAS}_leadercount{{OF}}", "led, {{instance}}"),
                    Query(f"{_REPLICAS}_partitioncount{{OF}}", "hosted, {{instance}}"),
                ),
            ),
            Panel("Bugs", "short", (Query("increase(klog_bugs_total{OF}[1h])"),)),
        ),
    ),
    Section(
        "Traffic",
        (
            Panel(
                "Records in", "cps", (Query(_rate(f'{_TOPICS}_messagesin_total{{topic="",OF}}')),)
            ),
            Panel("Bytes in", "Bps", (Query(_rate(f'{_TOPICS}_bytesin_total{{topic="",OF}}')),)),
            Panel("Bytes out", "Bps", (Query(_rate(f'{_TOPICS}_bytesout_total{{topic="",OF}}')),)),
            Panel(
                "Bytes in by topic",
                "Bps",
                (
                    Query(
                        _rate(f'{_TOPICS}_bytesin_total{{topic=~".+",OF}}', by="topic"), "{{topic}}"
                    ),
                ),
            ),
            Panel(
                "Requests",
                "reqps",
                (Query(_rate(f"{_REQUESTS}_requests_total{{OF}}", by="request"), "{{request}}"),),
            ),
            Panel(
                "Errors in responses",
                "cps",
                (Query(_rate(f"{_REQUESTS}_errors_total{{OF}}", by="error"), "{{error}}"),),
            ),
        ),
    ),
    Section(
        "Latency",
        (
            Panel(
                "Produce, 99 of 100",
                "ms",
                (
                    Query(
                        _quantile("0.99", f'{_REQUESTS}_totaltimems_bucket{{request="Produce",OF}}')
                    ),
                ),
            ),
            Panel("Event-loop turn, 99 of 100", "ms", (Query(_quantile("0.99", _TURNS)),)),
            Panel("Log flush, 99 of 100", "ms", (Query(_quantile("0.99", _FLUSHES)),)),
            Panel(
                "Delayed operations",
                "short",
                (
                    Query(
                        "sum by (delayedoperation)"
                        " (kafka_server_delayedoperationpurgatory_purgatorysize{OF})",
                        "{{delayedoperation}}",
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Replication",
        (
            Panel(
                "Highest lag of a follower (records)",
                "short",
                (Query("kafka_server_replicafetchermanager_maxlag{OF}"),),
            ),
            Panel(
                "Lag by leader (records)",
                "short",
                (Query("klog_replica_fetcher_lag{OF}", "{{instance}} from {{leader}}"),),
            ),
            Panel(
                "Changes of ISRs",
                "cps",
                (
                    Query(_rate(f"{_REPLICAS}_isrshrinks_total{{OF}}"), "shrinks, {{instance}}"),
                    Query(_rate(f"{_REPLICAS}_isrexpands_total{{OF}}"), "expands, {{instance}}"),
                    Query(
                        _rate(f"{_REPLICAS}_failedisrupdates_total{{OF}}"), "refused, {{instance}}"
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Controller and ZooKeeper",
        (
            Panel(
                "Connected to ZooKeeper", "short", (Query("klog_zookeeper_session_connected{OF}"),)
            ),
            Panel(
                "Lost connections and sessions in an hour",
                "short",
                (
                    Query(
                        f"increase({_SESSION}disconnects_total{{OF}}[1h])",
                        "lost connections, {{instance}}",
                    ),
                    Query(
                        f"increase({_SESSION}expires_total{{OF}}[1h])",
                        "ended sessions, {{instance}}",
                    ),
                    Query(
                        f"increase({_SESSION}syncconnects_total{{OF}}[1h])",
                        "connections, {{instance}}",
                    ),
                ),
            ),
            Panel(
                "Elected leaders in an hour",
                "short",
                (
                    Query(
                        "sum by (reason) (increase(klog_elected_leaders_total{OF}[1h]))",
                        "{{reason}}",
                    ),
                    Query(
                        f"sum by (job) (increase({_STATS}_uncleanleaderelections_total{{OF}}[1h]))",
                        "unclean",
                    ),
                ),
            ),
            Panel(
                "Duration of elections, 99 of 100",
                "ms",
                (Query(_quantile("0.99", f"{_STATS}_leaderelectionrateandtimems_bucket{{OF}}")),),
            ),
            Panel(
                "Controller's events",
                "cps",
                (Query(_rate("klog_controller_events_total{OF}", by="event"), "{{event}}"),),
            ),
            Panel(
                "Controller's time by event",
                "percentunit",
                (Query(_rate("klog_controller_event_seconds_total{OF}", by="event"), "{{event}}"),),
            ),
            Panel(
                "Waiting events and deletions",
                "short",
                (
                    Query(f"{_EVENTS}_eventqueuesize{{OF}}", "events, {{instance}}"),
                    Query(f"{_CONTROLLER}_topicstodeletecount{{OF}}", "deletions, {{instance}}"),
                ),
            ),
            Panel(
                "Wait of events, 99 of 100",
                "ms",
                (Query(_quantile("0.99", f"{_EVENTS}_eventqueuetimems_bucket{{OF}}")),),
            ),
            Panel(
                "Topics and partitions",
                "short",
                (
                    Query(f"{_CONTROLLER}_globaltopiccount{{OF}}", "topics, {{instance}}"),
                    Query(f"{_CONTROLLER}_globalpartitioncount{{OF}}", "partitions, {{instance}}"),
                ),
            ),
        ),
    ),
    Section(
        "Disks and logs",
        (
            Panel(
                "Free disk space",
                "bytes",
                (
                    Query(f"{_DIRECTORY}_free_bytes{{OF}}", "{{instance}} {{logdirectory}}"),
                    Query(
                        f"{_DIRECTORY}_min_free_bytes{{OF}}", "floor, {{instance}} {{logdirectory}}"
                    ),
                ),
            ),
            Panel(
                "Share of the disk that is free",
                "percentunit",
                (
                    Query(
                        f"{_DIRECTORY}_free_bytes{{OF}} / {_DIRECTORY}_total_bytes{{OF}}",
                        "{{instance}} {{logdirectory}}",
                    ),
                ),
            ),
            Panel(
                "Directories that refuse writes or are offline",
                "short",
                (
                    Query(
                        f"{_DIRECTORY}_refuses_records{{OF}}",
                        "refuses records, {{instance}} {{logdirectory}}",
                    ),
                    Query(
                        f"{_DIRECTORY}_refuses_state{{OF}}",
                        "refuses state, {{instance}} {{logdirectory}}",
                    ),
                    Query(
                        "kafka_log_logmanager_logdirectoryoffline{OF}",
                        "offline, {{instance}} {{logdirectory}}",
                    ),
                ),
            ),
            Panel(
                "Size of logs by topic",
                "bytes",
                (Query("sum by (topic) (kafka_log_log_size{OF})", "{{topic}}"),),
            ),
            Panel(
                "Segments by topic",
                "short",
                (Query("sum by (topic) (kafka_log_log_numlogsegments{OF})", "{{topic}}"),),
            ),
            Panel(
                "Log cleaner",
                "Bps",
                (
                    Query(_rate("klog_cleaner_read_bytes_total{OF}"), "reads, {{instance}}"),
                    Query(_rate("klog_cleaner_kept_bytes_total{OF}"), "keeps, {{instance}}"),
                ),
            ),
            Panel(
                "Logs that are not cleaned",
                "short",
                (Query(f"{_CLEANER}_uncleanable_partitions_count{{OF}}"),),
            ),
            Panel(
                "Time since the cleaner looked for a log",
                "ms",
                (Query(f"{_CLEANER}_time_since_last_run_ms{{OF}}"),),
            ),
        ),
    ),
    Section(
        "Groups and transactions",
        (
            Panel(
                "Groups",
                "short",
                (
                    Query(f"sum by (job) ({_GROUPS}stable{{OF}})", "stable"),
                    Query(f"sum by (job) ({_GROUPS}empty{{OF}})", "empty"),
                    Query(
                        f"sum by (job) ({_GROUPS}preparingrebalance{{OF}})", "preparing rebalance"
                    ),
                    Query(
                        f"sum by (job) ({_GROUPS}completingrebalance{{OF}})", "completing rebalance"
                    ),
                    Query(f"sum by (job) ({_GROUPS}dead{{OF}})", "dead"),
                ),
            ),
            Panel(
                "Transactional ids",
                "short",
                (Query("sum by (state) (klog_transactions{OF})", "{{state}}"),),
            ),
            Panel(
                "Coordinators' partitions",
                "short",
                (
                    Query(
                        "sum by (topic, status) (klog_coordinator_partitions{OF})",
                        "{{topic}} {{status}}",
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Processes",
        (
            Panel("Cores in use", "short", (Query("rate(process_cpu_seconds_total{OF}[5m])"),)),
            Panel("Resident memory", "bytes", (Query("process_resident_memory_bytes{OF}"),)),
            Panel(
                "Connections and their limit",
                "short",
                (
                    Query(f"{_SOCKETS}_count{{OF}}", "open, {{instance}}"),
                    Query("klog_max_connections{OF}", "limit, {{instance}}"),
                ),
            ),
            Panel("New connections", "cps", (Query(_rate(f"{_SOCKETS}_creation_total{{OF}}")),)),
            Panel(
                "Share of the descriptors in use",
                "percentunit",
                (Query("process_open_fds{OF} / process_max_fds{OF}"),),
            ),
            Panel(
                "Difference to Prometheus' clock",
                "s",
                (Query("klog_clock_seconds{OF} - timestamp(klog_clock_seconds{OF})"),),
            ),
        ),
    ),
)
