"""Failures of brokers, and the alerts that fire: each scenario causes one and scrapes the broker.

The brokers are in memory. The scenarios of the controller and of the ZooKeeper session have only
these in memory; their metrics are added to those of a broker without failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from unittest.mock import patch

from klog_broker import app
from klog_broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from klog_broker.log.directory.free_space import MEASURE_INTERVAL_MS
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.segment import Segment
from klog_broker.monitoring.cluster_metrics import zookeeper_metrics
from klog_broker.runtime.system import descriptors
from klog_broker.runtime.system.process_facts import ProcessFacts, process_facts
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.alerts.history import History, Target
from tests.support.alerts.watched_brokers import (
    BROKER,
    FLOOR,
    FollowedBroker,
    WatchedBroker,
    WatchedController,
)
from tests.support.cluster.broker import ME
from tests.support.cluster.controller import TOPIC_ID
from tests.support.cluster.leading_broker import OTHER, THIRD
from tests.support.cluster.zookeeper import SESSION_MS, ClusterWorld
from tests.support.monitoring.scraping import scrape, section_samples
from tests.support.raw_requests import fetch_request

FIRST_SEGMENT = "00000000000000000000.log"


# --- disks ---------------------------------------------------------------------------------------
def disk_below_its_floor() -> History:
    watched = WatchedBroker()
    watched.files.free_bytes = FLOOR // 2
    watched.memory.pass_time(MEASURE_INTERVAL_MS + 100)
    return watched.last(15)


def full_disk_without_a_floor() -> History:
    watched = WatchedBroker(log_dir_min_free_bytes=0)
    watched.files.free_bytes = 0
    watched.produce(count=3)
    return watched.last(2)


def failed_sync() -> History:
    watched = WatchedBroker()
    watched.files.fail_sync_at = watched.files.syncs + 1
    watched.produce()
    return watched.last(10)


def deletion_in_an_offline_directory() -> History:
    watched = WatchedBroker()
    watched.files.fail_sync_at = watched.files.syncs + 1
    watched.produce()
    topic = DeleteTopicState(topic_id=watched.ids["flushed"])
    watched.memory.call(DeleteTopicsRequest(topics=[topic]), 6)
    return watched.last(40)


def failed_write_of_the_metadata() -> History:
    watched = WatchedBroker()
    watched.files.fail_sync_at = watched.files.syncs + 1
    watched.create("new", {})
    return watched.last(10)


def failed_read() -> History:
    watched = WatchedBroker()
    watched.produce("other")
    watched.files.bad_files = lambda path: "other-0" in str(path)
    watched.memory.call(fetch_request(watched.ids["other"]), 13)
    return watched.last(10)


# --- logs ----------------------------------------------------------------------------------------
def log_that_fails_because_of_a_bug() -> History:
    watched = WatchedBroker()
    with patch.object(Segment, "commit", side_effect=ZeroDivisionError):
        watched.produce("other")
    return watched.last(2)


def bug_in_a_request() -> History:
    watched = WatchedBroker()
    with patch.object(PartitionLog, "append_as_leader", side_effect=ZeroDivisionError):
        watched.produce("other")
    return watched.last(2)


def damaged_record_in_a_compacted_log() -> History:
    watched = WatchedBroker()
    watched.produce("compacted", 40)
    log = watched.memory.log("compacted")
    assert len(log.segments) > 2
    watched.files.open(log.path / FIRST_SEGMENT).pwrite(b"\xff", 90)
    watched.memory.pass_time(60_000)
    return watched.last(2)


def cleaner_that_never_ends() -> History:
    watched = WatchedBroker()
    watched.produce("compacted", 40)
    watched.memory.helpers.is_held = True
    watched.memory.pass_time(60_000)
    watched.memory.pass_time(3_600_000)
    return watched.last(2)


# --- the process ---------------------------------------------------------------------------------
def connections_up_to_the_limit_of_descriptors() -> History:
    with patch.object(descriptors, "limit", lambda: 128):
        watched = WatchedBroker()
    server = watched.memory.broker.server
    while server.connection_count < server.max_connections:
        watched.memory.connect()
    return watched.last(2)


def descriptors_in_use() -> History:
    facts = process_facts()

    def few_left() -> ProcessFacts:
        return facts._replace(open_descriptors=in_use, max_descriptors=1024)

    in_use = 100
    with patch.object(app, "process_facts", few_left):
        watched = WatchedBroker()
    in_use = 1000
    return watched.last(2)


def clock_a_year_ahead() -> History:
    watched = WatchedBroker()
    watched.clock.wrong_by_ms = 365 * 86_400_000
    return watched.last(2)


def clock_an_hour_behind() -> History:
    watched = WatchedBroker()
    watched.clock.wrong_by_ms = -3_600_000
    return watched.last(2)


def slow_turns() -> History:
    watched = WatchedBroker()
    for _ in range(70):
        for _ in range(3):
            watched.memory.broker.loop.post(lambda: watched.clock.advance(50))
            watched.memory.turns()
        watched.scrape()
    return watched.history


def busy_core() -> History:
    facts = process_facts()
    cpu_seconds = 0.0
    with patch.object(app, "process_facts", lambda: facts._replace(cpu_seconds=cpu_seconds)):
        watched = WatchedBroker()
    for _ in range(100):
        cpu_seconds += 14.9
        watched.scrape()
    return watched.history


def failed_coordinator() -> History:
    watched = WatchedBroker(offsets_topic_num_partitions=1)
    memory = watched.memory
    memory.call(FindCoordinatorRequest(key="g", key_type=0), 3)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="other", partitions=[partition])
    memory.call(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    log = memory.log(CONSUMER_OFFSETS)
    assert log.log_end_offset > 0
    watched.files.open(log.path / FIRST_SEGMENT).pwrite(b"\xff", 90)
    memory.assign(CONSUMER_OFFSETS, leader=OTHER, leader_epoch=1, replicas=(ME, OTHER))
    memory.assign(CONSUMER_OFFSETS, leader_epoch=2)
    return watched.last(2)


def killed_broker() -> History:
    watched = WatchedBroker()
    watched.history.record(**{BROKER: Target(None)})
    watched.history.hold(5)
    return watched.history


# --- replicas ------------------------------------------------------------------------------------
def lagging_follower() -> History:
    return FollowedBroker("plain").lose_followers(keeps=(THIRD,))


def lost_followers_of_a_topic_with_min_insync_replicas() -> History:
    return FollowedBroker("two-in-sync").lose_followers()


# --- the cluster ---------------------------------------------------------------------------------
def partition_without_a_live_replica() -> History:
    watched = WatchedController()
    watched.cluster.create(2, 3)
    for number in (2, 3):
        watched.cluster.unregister_broker(number)
    return watched.last(2)


def unclean_election() -> History:
    watched = WatchedController()
    cluster = watched.cluster
    cluster.create(2, 3)
    for number in (3, 2):
        cluster.unregister_broker(number)
    cluster.unclean.add("t")
    cluster.register(3)
    return watched.last(2)


def deletion_that_waits_for_a_broker() -> History:
    watched = WatchedController()
    watched.cluster.create(2, 3)
    watched.cluster.unregister_broker(3)
    watched.cluster.call(watched.cluster.controller.delete_topic, "t", TOPIC_ID)
    return watched.last(40)


def expired_session() -> History:
    world, watched, history = ClusterWorld(), WatchedBroker(), History()
    sessions, client = world.sessions()
    healthy, now_s = scrape(watched.memory), watched.clock.now_ms() / 1000

    def record() -> None:
        found = section_samples(zookeeper_metrics, zookeeper_counts=sessions.counts)
        history.record(**{BROKER: Target(healthy | found, now_s)})

    world.until(lambda: sessions.counts.is_connected)
    record()
    history.hold(20)
    assert history.firing() == {}, "an alert fires without a failure"
    client.cut()
    world.advance(3 * SESSION_MS)
    record()
    client.mend()
    world.until(lambda: sessions.counts.expirations)
    world.until(lambda: sessions.counts.is_connected)
    record()
    history.hold(2)
    return history


class Scenario(NamedTuple):
    """A failure, and all alerts that fire in the end."""

    cause: Callable[[], History]
    alerts: frozenset[str]


def _scenario(cause: Callable[[], History], *alerts: str) -> Scenario:
    return Scenario(cause, frozenset(f"Klog{each}" for each in alerts))


_OFFLINE_DISK = ("DirectoryOffline", "ReplicaOffline", "PartitionOffline")
SCENARIOS: Mapping[str, Scenario] = {
    each.cause.__name__: each
    for each in (
        _scenario(disk_below_its_floor, "DiskBelowFloor", "DiskFills"),
        _scenario(full_disk_without_a_floor, "StorageErrors"),
        _scenario(failed_sync, *_OFFLINE_DISK),
        _scenario(deletion_in_an_offline_directory, *_OFFLINE_DISK, "TopicDeletionWaits"),
        _scenario(failed_write_of_the_metadata, "MetadataFailed"),
        _scenario(failed_read, *_OFFLINE_DISK),
        _scenario(
            log_that_fails_because_of_a_bug,
            "ReplicaOffline",
            "PartitionOffline",
            "StorageErrors",
        ),
        _scenario(bug_in_a_request, "Bug", "StorageErrors"),
        _scenario(damaged_record_in_a_compacted_log, "NotCompacted"),
        _scenario(cleaner_that_never_ends, "CleanerStuck"),
        _scenario(connections_up_to_the_limit_of_descriptors, "ConnectionsRunOut"),
        _scenario(descriptors_in_use, "DescriptorsRunOut"),
        _scenario(clock_a_year_ahead, "ClockWrong"),
        _scenario(clock_an_hour_behind, "ClockWrong"),
        _scenario(slow_turns, "TurnsSlow"),
        _scenario(busy_core, "EventLoopBusy"),
        _scenario(failed_coordinator, "CoordinatorFailed"),
        _scenario(killed_broker, "BrokerDown"),
        _scenario(lagging_follower, "UnderReplicated"),
        _scenario(
            lost_followers_of_a_topic_with_min_insync_replicas, "UnderReplicated", "UnderMinIsr"
        ),
        _scenario(partition_without_a_live_replica, "PartitionOffline"),
        _scenario(unclean_election, "UncleanElection"),
        _scenario(deletion_that_waits_for_a_broker, "TopicDeletionWaits"),
        _scenario(expired_session, "ZooKeeperSessionExpired"),
    )
}
