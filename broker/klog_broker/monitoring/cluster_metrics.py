"""Writes the metrics of a broker's part in its cluster: replication, controller, ZooKeeper session.

Only a broker in a cluster has metrics of a controller and of a ZooKeeper session.
"""

from __future__ import annotations

from collections.abc import Iterator

from klog_broker.controller.decisions.election_reason import ElectionReason
from klog_broker.monitoring.sources import Sources
from klog_broker.monitoring.text import MetricsText, labels

_REPLICAS = "kafka_server_replicamanager"
_STATS = "kafka_controller_controllerstats"
_EVENTS = "kafka_controller_controllereventmanager"
_SESSION = "kafka_server_sessionexpirelistener"
_LOOKED_AT_ONCE = 100
_LOOKED_AT_AN_ELEMENT = 10


def replication_metrics(sources: Sources, text: MetricsText) -> Iterator[int]:
    """Write the metrics of ISR changes and of this broker's follower replicas."""
    services = sources.services
    counts = services.in_sync_counts
    text.family(f"{_REPLICAS}_isrexpands_total", {"": counts.expanded})
    text.family(f"{_REPLICAS}_isrshrinks_total", {"": counts.shrunk})
    text.family(f"{_REPLICAS}_failedisrupdates_total", {"": counts.refused})
    most, by_leader = 0, dict[int, int]()
    for number, (leader, followed) in enumerate(sources.cluster.followed(), 1):
        lag = followed.lag
        most = max(most, lag)
        by_leader[leader] = by_leader.get(leader, 0) + lag
        if number % _LOOKED_AT_ONCE == 0:
            yield _LOOKED_AT_ONCE // _LOOKED_AT_AN_ELEMENT
    text.family("kafka_server_replicafetchermanager_maxlag", {labels(clientid="Replica"): most})
    text.family(
        "klog_replica_fetcher_lag",
        {labels(leader=leader): by_leader[leader] for leader in sorted(by_leader)},
    )
    yield 1


def controller_metrics(sources: Sources, text: MetricsText) -> Iterator[int]:
    """Write what this broker has done as the controller, and what waits for the controller."""
    controller = sources.cluster.controller()
    if controller is None:
        return
    counts = controller.counts
    text.family(f"{_EVENTS}_eventqueuesize", {"": controller.queue_size})
    text.histogram(f"{_EVENTS}_eventqueuetimems", {"": counts.event_waits.row})
    names = sorted(counts.events)
    text.family(
        "klog_controller_events_total", {labels(event=name): counts.events[name] for name in names}
    )
    text.family(
        "klog_controller_event_seconds_total",
        {labels(event=name): counts.event_ms[name] / 1000 for name in names},
    )
    text.histogram(f"{_STATS}_leaderelectionrateandtimems", {"": counts.elections.row})
    text.family(f"{_STATS}_uncleanleaderelections_total", {"": counts.unclean_elections})
    # With a 0 for each reason without elections: Prometheus' `increase` would miss the first value
    # of a series that begins above 0.
    text.family(
        "klog_elected_leaders_total",
        {labels(reason=each): counts.elected[each] for each in sorted(ElectionReason)},
    )
    yield 10


def zookeeper_metrics(sources: Sources, text: MetricsText) -> Iterator[int]:
    """Write the state of the ZooKeeper session, and how often it changed."""
    counts = sources.cluster.zookeeper_counts()
    if counts is None:
        return
    text.family("klog_zookeeper_session_connected", {"": int(counts.is_connected)})
    text.family(f"{_SESSION}_zookeepersyncconnects_total", {"": counts.connects})
    text.family(f"{_SESSION}_zookeeperdisconnects_total", {"": counts.disconnects})
    text.family(f"{_SESSION}_zookeeperexpires_total", {"": counts.expirations})
    yield 1
