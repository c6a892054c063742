"""Brokers and controllers in memory whose metrics are scraped into a history.

Each begins without a failure, and checks that no alert fires then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from klog_broker.monitoring.cluster_metrics import controller_metrics
from pyspark_klog.ids import UUID, BrokerId
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.support.alerts.history import History, Target
from tests.support.cluster.broker import ME, MemoryBroker
from tests.support.cluster.controller import Controlled
from tests.support.cluster.leading_broker import FakeFollower, LeadingBroker
from tests.support.cluster.server import NOW_MS
from tests.support.log.harness import batch as keyed_batch
from tests.support.monitoring.scraping import METRICS_LISTENER, scrape, section_samples
from tests.support.raw_requests import produce_request
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

FLOOR = 1_000_000
BROKER = "broker-0"
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
