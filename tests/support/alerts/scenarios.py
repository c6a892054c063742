"""Failures of brokers, and the alerts that fire: each scenario causes one and scrapes the broker.

The brokers are in memory. The scenarios of the controller and of the ZooKeeper session have only
these in memory; their metrics are added to those of a broker without failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from klog_broker import app
from klog_broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from klog_broker.log.directory.free_space import MEASURE_INTERVAL_MS
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.segment import Segment
from klog_broker.monitoring.cluster_metrics import controller_metrics, zookeeper_metrics
from klog_broker.runtime.system import descriptors
from klog_broker.runtime.system.process_facts import ProcessFacts, process_facts
from pyspark_klog.ids import UUID, BrokerId
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.alerts.history import History, Target
from tests.support.cluster.broker import ME, MemoryBroker
from tests.support.cluster.controller import TOPIC_ID, Controlled
from tests.support.cluster.leading_broker import OTHER, THIRD, FakeFollower, LeadingBroker
from tests.support.cluster.server import NOW_MS
from tests.support.cluster.zookeeper import SESSION_MS, ClusterWorld
from tests.support.log.harness import batch as keyed_batch
from tests.support.monitoring.scraping import METRICS_LISTENER, scrape, section_samples
from tests.support.raw_requests import fetch_request, produce_request
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

FLOOR = 1_000_000
BROKER = "broker-0"
FIRST_SEGMENT = "00000000000000000000.log"
_OFFLINE = "kafka_controller_kafkacontroller_offlinepartitionscount"
_TO_DELETE = "kafka_controller_kafkacontroller_topicstodeletecount"
TOPICS: Mapping[str, Mapping[str, str]] = {
    "flushed": {"flush.messages": "1"},
    "other": {},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "1500",
        "min.cleanable.dirty.ratio": "0",
    },
}


class WatchedBroker:
    """A broker in memory with two data directories, and the history of its scrapes."""

    def __init__(self, directories: int = 2, **settings: object) -> None:
        self.clock = JumpingClock(NOW_MS)
        self.files = MemoryFiles()
        self.memory = MemoryBroker(
            self.files,
            with_kernel=False,
            clock=self.clock,
            data=[Path(f"/data-{number}") for number in range(directories)],
            metrics_listener=METRICS_LISTENER,
            **({"log_dir_min_free_bytes": FLOOR} | settings),
        )
        self.ids = {name: self.create(name, configs) for name, configs in TOPICS.items()}
        self.history = History()
        self.scrape()
        self.history.hold(20)
        assert self.history.firing() == {}, "an alert fires without a failure"

    def create(self, name: str, configs: Mapping[str, str]) -> UUID:
        """Create a topic with one partition; return its id."""
        rows = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
        answer = self.memory.call(CreateTopicsRequest(topics=[topic]), 7)
        found: UUID = answer.topics[0].topic_id
        return found

    def scrape(self) -> None:
        """Scrape the broker now."""
        target = Target(scrape(self.memory), self.clock.monotonic_ms() / 1000)
        self.history.record(**{BROKER: target})

    def last(self, minutes: float) -> History:
        """Scrape the broker, whose state then lasts for some minutes."""
        self.scrape()
        self.history.hold(minutes)
        return self.history

    def produce(self, topic: str = "flushed", count: int = 1) -> None:
        """Send records one by one, and let the broker do what follows."""
        for _ in range(count):
            request = produce_request(topic, keyed_batch(value=b"x" * 100), acks=-1)
            self.memory.send(request, 9)
        self.memory.pass_time(1)


class JumpingClock(ManualClock):
    """A clock whose wall clock can be wrong."""

    wrong_by_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.wrong_by_ms


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
class FollowedBroker:
    """A broker in memory that leads a partition with two followers, and its history."""

    def __init__(self, topic: str) -> None:
        self.leading = LeadingBroker(metrics_listener=METRICS_LISTENER)
        self.leading.lead(topic)
        self.topic = topic
        self.history = History()
        self.scrape()
        self.history.hold(20)
        assert self.history.firing() == {}, "an alert fires without a failure"

    def scrape(self) -> None:
        """Scrape the broker now."""
        memory = self.leading.memory
        target = Target(scrape(memory), memory.clock.now_ms() / 1000)
        self.history.record(**{BROKER: target})

    def lose_followers(self, *, keeps: Sequence[BrokerId] = ()) -> History:
        """Append a record that only the followers `keeps` fetch, until the others are out of sync;
        return the history of the next ten minutes."""
        self.leading.send(self.topic, acks=1)
        followers = [FakeFollower(self.leading, number) for number in keeps]
        for _ in range(6):
            for follower in followers:
                follower.fetch(1, self.topic)
            self.leading.memory.pass_time(10_000)
        assert self.leading.wanted() == [[ME, *keeps]]
        self.leading.grant()
        self.scrape()
        self.history.hold(10)
        return self.history


def lagging_follower() -> History:
    return FollowedBroker("plain").lose_followers(keeps=(THIRD,))


def lost_followers_of_a_topic_with_min_insync_replicas() -> History:
    return FollowedBroker("two-in-sync").lose_followers()


# --- the cluster ---------------------------------------------------------------------------------
class WatchedController:
    """A controller in memory, whose metrics are added to those of a broker without failures."""

    def __init__(self) -> None:
        self.cluster = Controlled.of_three()
        self.history = History()
        watched = WatchedBroker()
        self._healthy = scrape(watched.memory)
        self._now_s = watched.clock.now_ms() / 1000
        self.scrape()
        self.history.hold(20)
        assert self.history.firing() == {}, "an alert fires without a failure"

    def scrape(self) -> None:
        """Scrape the controller now."""
        controller = self.cluster.controller
        samples = self._healthy | section_samples(controller_metrics, controller=controller)
        samples[_OFFLINE, frozenset()] = controller.offline_partitions
        samples[_TO_DELETE, frozenset()] = len(controller.deleting_topics)
        self.history.record(**{BROKER: Target(samples, self._now_s)})

    def last(self, minutes: float) -> History:
        """Scrape the controller, whose state then lasts for some minutes."""
        self.scrape()
        self.history.hold(minutes)
        return self.history


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
