"""A local metadata store that makes changes at once, with scripted role changes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from klog_broker.config import Listener
from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.image import BrokerRegistration, MetadataImage, Topic
from klog_broker.metadata.interface import NewTopic, ProducerIdBlock
from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors, RoleRemoval
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from tests.support.cluster.helpers import Helpers

T = TypeVar("T")
Assignment = Sequence[Sequence[BrokerId]]


class SteppedLoop:
    """Runs posted actions at once; while it is held, one a turn. `run_timers` runs the timers."""

    def __init__(self) -> None:
        self.is_held = False
        self.turn = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self._posted: list[Callable[[], None]] = []
        self._is_running = False

    def post(self, action: Callable[[], None]) -> None:
        self._posted.append(action)
        if not self.is_held:
            self.run()

    call_at_append = call_soon = post

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.timers.append((delay_ms, action))

    def run(self, turns: int = -1) -> None:
        if self._is_running:
            return
        self._is_running = True
        while self._posted and turns != 0:
            self.turn += 1
            self._posted.pop(0)()
            turns -= 1
        self._is_running = False

    def run_timers(self) -> None:
        timers, self.timers = self.timers, []
        for _, action in timers:
            action()


class ScriptedRoleChanges:
    """Records role changes; responds with `failures`, at once or when they are released."""

    def __init__(self) -> None:
        self.given: list[list[RoleChange]] = []
        self.failures: dict[TopicPartition, KlogError] = {}
        self.is_held = False
        self.holds_deletions = False
        self._waiting: list[Callable[[], None]] = []

    def apply(self, orders: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]) -> None:
        self.given.append(list(orders))
        named = [order.topic_partition for order in orders]
        self._waiting.append(
            lambda: done({each: self.failures[each] for each in named if each in self.failures})
        )
        deletes = any(isinstance(order, RoleRemoval) for order in orders)
        if not self.is_held and not (deletes and self.holds_deletions):
            self._waiting.pop()()

    def release_one(self) -> None:
        """Respond to the oldest call."""
        self._waiting.pop(0)()

    def release(self) -> None:
        self.is_held = self.holds_deletions = False
        while self._waiting:
            self._waiting.pop(0)()


class BlockingStore:
    """A LocalStore on its own: its methods return the outcome of a change, or raise it."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        broker_id: int = 1,
        *,
        orders: ScriptedRoleChanges | None = None,
        found: Mapping[TopicPartition, FoundLog] | None = None,
    ) -> None:
        """Opened and elected, perhaps without a file: `register_broker` begins one."""
        self.broker_id = BrokerId(broker_id)
        self.loop: Any = SteppedLoop()
        self.role_changes = orders or ScriptedRoleChanges()
        self.images: list[tuple[MetadataImage, list[str]]] = []
        self.store = LocalStore.open(files, directory, self.broker_id, chance=Chance())
        self.store.start(
            self.loop,
            Helpers(),
            on_image=lambda image, names: self.images.append((image, list(names))),
            apply=self.role_changes.apply,
        )
        self.store.elect(found or {})

    def register_broker(self) -> "BlockingStore":
        """Register the broker, which begins a file."""
        endpoint = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
        self.store.register_broker(BrokerRegistration(self.broker_id, (endpoint,)))
        return self

    @property
    def image(self) -> MetadataImage:
        return self.store.image

    def create_topic(
        self,
        name: str,
        assignment: Assignment,
        configs: Mapping[str, str],
        topic_id: TopicId | None = None,
    ) -> Topic:
        replicas = tuple(tuple(each) for each in assignment)
        (outcome,) = self.create_topics([NewTopic(name, replicas, configs, topic_id)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def create_topics(self, topics: Sequence[NewTopic]) -> list[Topic | Exception]:
        return outcome_of(lambda done: self.store.create_topics(topics, done))

    def create_partitions(self, name: str, first: int, assignment: Assignment) -> Topic:
        return outcome_of(lambda done: self.store.create_partitions(name, first, assignment, done))

    def update_topic_configs(
        self, name: str, update: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Topic:
        return outcome_of(lambda done: self.store.update_topic_configs(name, update, done))

    def delete_topic(self, topic_id: TopicId) -> Topic:
        return outcome_of(lambda done: self.store.delete_topic(topic_id, done))

    def begin_topic_deletion(self, topic_id: TopicId) -> None:
        """Begin a deletion; its role changes get no response before `finish_deletions`."""
        self.role_changes.holds_deletions = True
        outcomes: list[Topic | Exception] = []
        self.store.delete_topic(topic_id, outcomes.append)
        for outcome in outcomes:
            assert isinstance(outcome, Exception)
            raise outcome

    def finish_deletions(self) -> None:
        """Finish the deletions that have begun."""
        self.role_changes.release()

    def allocate_producer_ids(self) -> ProducerIdBlock:
        return outcome_of(self.store.allocate_producer_ids)


def outcome_of(ask: Callable[[Callable[[T | Exception], None]], None]) -> T:
    """Return the result that ``ask`` passes to ``done`` before it returns; raise it if an error."""
    outcomes: list[T | Exception] = []
    ask(outcomes.append)
    (outcome,) = outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
