"""Reads the broker's counts and writes the text of /metrics, in steps: the event loop serves
requests between the steps (runtime/event_loop/slices.py)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.coordinator.transaction.coordinator import TRANSACTION_STATE
from klog_broker.coordinator.transaction.states import LASTING
from klog_broker.metrics.histogram import new_row
from klog_broker.metrics.requests import NOT_SERVED, api_and_version
from klog_broker.monitoring.cluster_metrics import (
    controller_metrics,
    replication_metrics,
    zookeeper_metrics,
)
from klog_broker.monitoring.sources import Sources
from klog_broker.monitoring.text import MetricsText, labels
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Offline
from pyspark_klog._version import __version__
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.keys import ApiKey

T = TypeVar("T")
_Steps = Generator[int, None, T]

_AT_ONCE = 10
_LINES_AT_ONCE = 250
_LOG_METRICS = ("size", "logstartoffset", "logendoffset", "numlogsegments")
# Each step yields its cost in elements, units of about 5 us of work
# (runtime/event_loop/slices.py): an element is the work for two partitions with four lines each, or
# for ten lines of a histogram.
_PARTITIONS_AN_ELEMENT = 2
_LINES_AN_ELEMENT = 10
_LOOKED_AT_ONCE = 100
_LOOKED_AT_AN_ELEMENT = 10
_SEGMENTS_AN_ELEMENT = 25

# Errors that the broker is to blame for are shown even before the first one: for Prometheus a
# counter that appears with its first error has not increased.
_NO_ERRORS: dict[tuple[int, int], int] = {
    (int(api), int(error)): 0
    for api in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.CREATE_TOPICS)
    for error in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
}

_BROKER = "kafka_server_brokertopicmetrics"
_REQUEST = "kafka_network_requestmetrics"
_REPLICAS = "kafka_server_replicamanager"
_CONTROLLER = "kafka_controller_kafkacontroller"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
# Kafka's numbers of the states STARTING, RUNNING and PENDING_CONTROLLED_SHUTDOWN.
_STARTING, _RUNNING, _STOPPING = 1, 3, 6


def collect(sources: Sources) -> _Steps[list[bytes]]:
    """Yield the cost of each step, in elements (units of about 5 us of work), then return the text
    of all metrics as a list of byte strings."""
    text = MetricsText()
    text.family("klog_build_info", {labels(version=__version__): 1})
    text.family("kafka_server_kafkaserver_brokerstate", {"": _broker_state(sources)})
    for section in (
        _requests,
        _topics,
        _partitions,
        _replicas,
        replication_metrics,
        controller_metrics,
        zookeeper_metrics,
        _logs,
        _waiting,
        _groups,
        _transactions,
        _loop,
        _process,
    ):
        yield from section(sources, text)
    return text.finish()


def _broker_state(sources: Sources) -> int:
    if sources.is_stopping():
        return _STOPPING
    return _STARTING if sources.is_starting() else _RUNNING


def _requests(sources: Sources, text: MetricsText) -> Iterator[int]:
    times, services, server = sources.server.requests, sources.services, sources.server
    counts: dict[str, float] = {}
    by_api: dict[str, list[int]] = {}
    for head, row in times.rows.items():
        api_key, version = api_and_version(head)
        name = _api_name(api_key)
        told = "other" if version == NOT_SERVED else version
        counts[labels(request=name, version=told)] = sum(row[:-1])
        of_api = by_api.setdefault(labels(request=name), new_row())
        of_api[:] = map(sum, zip(of_api, row, strict=True))
    yield 1 + len(times.rows)
    text.family(f"{_REQUEST}_requests_total", counts)
    counted: dict[tuple[int, int], int] = {**_NO_ERRORS, **services.requests.errors}
    errors = {
        labels(request=_api_name(api_key), error=ErrorCode(code).name): count
        for (api_key, code), count in counted.items()
    }
    text.family(f"{_REQUEST}_errors_total", errors)
    text.histogram(f"{_REQUEST}_totaltimems", by_api)
    yield 1 + (20 * len(by_api) + len(errors)) // _LINES_AN_ELEMENT
    sockets = "kafka_server_socket_server_metrics_connection"
    text.family(f"{sockets}_count", {"": server.connection_count})
    text.family("klog_max_connections", {"": server.max_connections})
    text.family(f"{sockets}_creation_total", {"": server.accepted})


def _api_name(api_key: int) -> str:
    return _words(ApiKey(api_key).name)


def _topics(sources: Sources, text: MetricsText) -> Iterator[int]:
    by_topic = sources.services.logs.counts
    # Read the counts of deleted topics and those of existing topics (`rows`) at once: a topic that
    # is deleted while this function yields is then counted once, in `rows`.
    total = by_topic.counts_of_deleted_topics()
    rows = tuple(by_topic.by_topic.items())
    names = [f"{_BROKER}_{each}_total" for each in ("messagesin", "bytesin", "bytesout")]
    families: list[list[str]] = [[] for _ in names]
    for start in range(0, len(rows), _AT_ONCE):
        for topic, counts in rows[start : start + _AT_ONCE]:
            total.add_counts(counts)
            values = (counts.messages_in, counts.bytes_in, counts.bytes_out)
            for name, family, value in zip(names, families, values, strict=True):
                family.append(f'{name}{{topic="{topic}"}} {value}')
        yield _AT_ONCE // _PARTITIONS_AN_ELEMENT
    totals = (total.messages_in, total.bytes_in, total.bytes_out)
    for name, family, value in zip(names, families, totals, strict=True):
        family.insert(0, f"{name} {value}")
    yield from _write(text, names, families)


def _partitions(sources: Sources, text: MetricsText) -> Iterator[int]:
    """Write a line for each partition and each of _LOG_METRICS, collected in one pass over the
    logs."""
    names = [f"kafka_log_log_{each}" for each in _LOG_METRICS]
    families: list[list[str]] = [[] for _ in names]
    logs = tuple(sources.services.logs.logs())
    for start in range(0, len(logs), _AT_ONCE):
        segments = 0
        for log in logs[start : start + _AT_ONCE]:
            topic, partition = log.topic_partition
            of = f'{{topic="{topic}",partition="{partition}"}}'
            count = len(log.segments)
            segments += count
            values = (log.size_bytes, log.log_start_offset, log.log_end_offset, count)
            for name, family, value in zip(names, families, values, strict=True):
                family.append(f"{name}{of} {value}")
        yield _AT_ONCE // _PARTITIONS_AN_ELEMENT + segments // _SEGMENTS_AN_ELEMENT
    yield from _write(text, names, families)


def _write(text: MetricsText, names: list[str], families: list[list[str]]) -> Iterator[int]:
    """Write the metric families in steps, because each has a line for every topic or partition.
    Topic names in labels need no escaping: they consist of letters, digits and ``._-``."""
    for name, lines in zip(names, families, strict=True):
        if lines:
            text.head(name)
        for start in range(0, len(lines), _LINES_AT_ONCE):
            text.lines(lines[start : start + _LINES_AT_ONCE])
            yield _LINES_AT_ONCE // 50


def _replicas(sources: Sources, text: MetricsText) -> Iterator[int]:
    leaders = offline = under_replicated = under_min = hosted = 0
    partitions = list(sources.services.replicas.partitions())
    for partition in partitions:
        role = partition.role
        hosted += 1
        if isinstance(role, Leader):
            leaders += 1
            under_replicated += role.replicas.is_under_replicated
            under_min += not role.is_enough_in_sync
        elif isinstance(role, Offline):
            offline += 1
        if hosted % _LOOKED_AT_ONCE == 0:
            yield _LOOKED_AT_ONCE // _LOOKED_AT_AN_ELEMENT
    text.family(f"{_REPLICAS}_partitioncount", {"": hosted})
    text.family(f"{_REPLICAS}_leadercount", {"": leaders})
    text.family(f"{_REPLICAS}_offlinereplicacount", {"": offline})
    text.family(f"{_REPLICAS}_underreplicatedpartitions", {"": under_replicated})
    text.family(f"{_REPLICAS}_underminisrpartitioncount", {"": under_min})
    without_leader = sources.cluster.without_leader(offline)
    text.family(f"{_CONTROLLER}_offlinepartitionscount", {"": without_leader})
    is_controller = sources.services.metadata.image.controller_id == sources.services.broker_id
    text.family(f"{_CONTROLLER}_activecontrollercount", {"": int(is_controller)})
    topics = tuple(sources.services.metadata.image.topics.values())
    count = 0
    for start in range(0, len(topics), _LOOKED_AT_ONCE):
        count += sum(len(each.partitions) for each in topics[start : start + _LOOKED_AT_ONCE])
        yield _LOOKED_AT_ONCE // _LOOKED_AT_AN_ELEMENT
    text.family(f"{_CONTROLLER}_globaltopiccount", {"": len(topics)})
    text.family(f"{_CONTROLLER}_globalpartitioncount", {"": count})
    deleting = sources.services.metadata.deleting_topics()
    text.family(f"{_CONTROLLER}_topicstodeletecount", {"": len(deleting)})
    yield 1


def _logs(sources: Sources, text: MetricsText) -> Iterator[int]:
    manager = "kafka_log_logmanager"
    directories = sources.services.logs.directories
    text.family(
        f"{manager}_offlinelogdirectorycount",
        {"": sum(directory.is_offline for directory in directories)},
    )
    text.family(
        f"{manager}_logdirectoryoffline",
        {labels(logdirectory=each.path): int(each.is_offline) for each in directories},
    )
    failed = sources.services.metadata.has_failed
    text.family("klog_metadata_file_failed", {"": int(failed)})
    yield from _free_space(sources, text)
    flushes = [sum(rows) for rows in zip(*(each.flushes.row for each in directories), strict=True)]
    text.histogram("kafka_log_logflushstats_logflushrateandtimems", {"": flushes})
    cleaner, counts = sources.cleaner, sources.cleaner.counts
    since_ms = sources.began_ms if counts.last_check_ms is None else counts.last_check_ms
    now_ms = sources.services.loop.now_ms()
    prefix = "kafka_log_logcleanermanager"
    text.family(f"{prefix}_uncleanable_partitions_count", {"": len(cleaner.set_aside)})
    if cleaner.is_enabled:
        text.family(f"{prefix}_time_since_last_run_ms", {"": max(now_ms - since_ms, 0)})
    text.family("klog_cleaner_rounds_total", {"": counts.rounds})
    text.family("klog_cleaner_read_bytes_total", {"": counts.bytes_read})
    text.family("klog_cleaner_kept_bytes_total", {"": counts.bytes_kept})
    text.family("klog_cleaner_seconds_total", {"": counts.total_ms / 1000})
    yield 5


def _free_space(sources: Sources, text: MetricsText) -> Iterator[int]:
    """Write the free space of the online directories at the last measurement. Without a floor the
    last measurement is that of the scrape before."""
    sources.services.logs.free_space.measure_without_floor()
    directory = "klog_log_directory"
    spaces = {
        labels(logdirectory=each.path): each.space
        for each in sources.services.logs.directories
        if not each.is_offline
    }
    measured = {of: each for of, each in spaces.items() if each.usable_bytes is not None}
    text.family(
        f"{directory}_free_bytes", {of: each.usable_bytes or 0 for of, each in measured.items()}
    )
    text.family(
        f"{directory}_total_bytes", {of: each.total_bytes or 0 for of, each in measured.items()}
    )
    text.family(
        f"{directory}_min_free_bytes", {of: each.floor_bytes for of, each in measured.items()}
    )
    text.family(
        f"{directory}_refuses_records",
        {of: int(each.refuses_clients) for of, each in spaces.items()},
    )
    text.family(
        f"{directory}_refuses_state", {of: int(each.refuses_state) for of, each in spaces.items()}
    )
    yield 1


def _waiting(sources: Sources, text: MetricsText) -> Iterator[int]:
    waiting = sources.services.purgatory.waiting_by_kind
    text.family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        {labels(delayedoperation=kind): waiting[kind] for kind in _KINDS},
    )
    yield 1


_KINDS = ("Produce", "Fetch", "Coordinator", "WriteTxnMarkers", "DeleteRecords")


def _groups(sources: Sources, text: MetricsText) -> Iterator[int]:
    counts = yield from sources.services.groups.count_states()
    text.family(f"{_GROUPS}_numgroups", {"": counts.total()})
    for state in GroupState:
        text.family(f"{_GROUPS}_numgroups{state.value.lower()}", {"": counts[state]})
    yield 1


def _transactions(sources: Sources, text: MetricsText) -> Iterator[int]:
    services = sources.services
    counts = yield from services.transactions.count_states()
    states = sorted(LASTING, key=lambda state: int(state))
    text.family(
        "klog_transactions", {labels(state=_words(each.name)): counts[each] for each in states}
    )
    samples: dict[str, float] = {}
    for topic, statuses in (
        (CONSUMER_OFFSETS, services.groups.statuses()),
        (TRANSACTION_STATE, services.transactions.statuses()),
    ):
        for status in (ShardStatus.LOADING, ShardStatus.SERVING, ShardStatus.FAILED):
            samples[labels(topic=topic, status=status.value)] = statuses[status]
    text.family("klog_coordinator_partitions", samples)
    yield 2


def _words(name: str) -> str:
    """Return an upper-case name in Kafka's spelling: OFFSET_COMMIT becomes OffsetCommit."""
    return "".join(word.capitalize() for word in name.split("_"))


def _loop(sources: Sources, text: MetricsText) -> Iterator[int]:
    services = sources.services
    text.histogram("klog_loop_turn_ms", {"": sources.server.requests.turns})
    events = {**services.requests.counters, **sources.server.counters}
    text.family("klog_events_total", {labels(event=name): events[name] for name in sorted(events)})
    text.family("klog_bugs_total", {"": services.requests.bugs.total})
    yield 3


def _process(sources: Sources, text: MetricsText) -> Iterator[int]:
    facts = sources.process()
    for name, value in (
        ("process_cpu_seconds_total", facts.cpu_seconds),
        ("process_resident_memory_bytes", facts.resident_bytes),
        ("process_virtual_memory_bytes", facts.virtual_bytes),
        ("process_open_fds", facts.open_descriptors),
        ("process_max_fds", facts.max_descriptors),
        ("process_start_time_seconds", sources.began_wall_ms / 1000),
        ("klog_clock_seconds", sources.services.clock.now_ms() / 1000),
    ):
        if value is not None:
            text.family(name, {"": value})
    yield 10
