"""The local store as a controller that is always elected: epochs, images and orders."""

import errno
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from klog_broker.metadata.change_queue import CHANGES_PER_WRITE
from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.errors import InvalidTopicName, StoreFailed, TopicExists
from klog_broker.metadata.image import MetadataImage, Topic
from klog_broker.metadata.interface import NewTopic
from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.local_file import FILE_NAME
from klog_broker.metadata.role_changes import RoleAssignment, RoleChange, RoleRemoval
from klog_broker.metadata.unserved_partitions import RETRY_MS
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition
from tests.support.cluster.local_store import BlockingStore, ScriptedRoleChanges
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import Crashed, MemoryFiles

ONE = BrokerId(1)
ALONE = ((ONE,),)


class CountedFiles(MemoryFiles):
    """A disk in memory that counts whole files written, and refuses some."""

    writes = 0
    refusals: tuple[int, ...] = ()

    def write_atomically(self, path: Path, data: bytes) -> None:
        if self.refusals:
            code, *rest = self.refusals
            self.refusals = tuple(rest)
            raise OSError(code, "no")
        self.writes += 1
        super().write_atomically(path, data)


@pytest.fixture
def files() -> CountedFiles:
    files = CountedFiles()
    files.make_dirs(DATA)
    for parent in (DATA.parent, DATA):
        files.sync_dir(parent)
    return files


@pytest.fixture
def store(files: CountedFiles) -> BlockingStore:
    return BlockingStore(files, DATA).register_broker()


def partition(name: str, number: int = 0) -> TopicPartition:
    return TopicPartition(name, number)


def led_in(orders: Sequence[RoleChange]) -> list[int]:
    """Return the partitions that these role changes make the broker lead."""
    return [
        order.topic_partition.partition
        for order in orders
        if isinstance(order, RoleAssignment) and order.leader == ONE
    ]


def found_log(topic: Topic, epoch: int, *, unclean: bool = False) -> FoundLog:
    return FoundLog(topic.topic_id, LeaderEpoch(epoch), unclean)


def epochs(image: MetadataImage, name: str) -> list[tuple[int, int]]:
    """Leader epoch and partition epoch of each partition."""
    states = image.topics[name].partitions
    return [(state.leader_epoch, state.partition_epoch) for state in states]


def stored(files: MemoryFiles) -> MetadataImage:
    return LocalStore.open(files, DATA, ONE).image


class TestElection:
    def test_after_a_clean_stop_everybody_leads_on_and_nothing_is_written(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        topic = store.create_topic("a", ALONE * 2, {})
        before = files.writes
        logs = {each: found_log(topic, 0) for each in topic.topic_partitions()}
        again = BlockingStore(files, DATA, found=logs)
        assert files.writes == before
        (orders,) = again.role_changes.given
        assert orders == [
            RoleAssignment(
                each, topic.topic_id, ONE, LeaderEpoch(0), 0, (ONE,), (ONE,), is_new=False
            )
            for each in topic.topic_partitions()
        ]

    def test_unclean_logs_and_newer_logs_begin_an_epoch_above_both_in_one_write(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        a = store.create_topic("a", ALONE * 4, {})
        b = store.create_topic("b", ALONE, {})
        before = files.writes
        logs = {
            partition("a", 0): found_log(a, 0, unclean=True),
            partition("a", 1): found_log(a, 7),
            partition("a", 2): found_log(a, 7, unclean=True),
            # The partition was never led, so its log has no epoch.
            partition("a", 3): found_log(a, -1),
            # The log was written by a broker that knew no topic ids.
            partition("b", 0): FoundLog(NO_TOPIC_ID, LeaderEpoch(3), False),
            partition("gone", 0): found_log(b, 9, unclean=True),
        }
        again = BlockingStore(files, DATA, found=logs)
        assert files.writes == before + 1
        for image in (again.image, stored(files)):
            assert epochs(image, "a") == [(1, 1), (8, 1), (8, 1), (0, 0)]
            assert epochs(image, "b") == [(4, 1)]
        assert [
            (order.leader_epoch, order.partition_epoch)
            for order in again.role_changes.given[0]
            if isinstance(order, RoleAssignment)
        ] == [(1, 1), (8, 1), (8, 1), (0, 0), (4, 1)]

    def test_another_topics_log_counts_for_nothing(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        topic = store.create_topic("a", ALONE, {})
        other = FoundLog(TopicId(topic.topic_id), LeaderEpoch(9), True)
        store.delete_topic(topic.topic_id)
        store.create_topic("a", ALONE, {})
        again = BlockingStore(files, DATA, found={partition("a"): other})
        assert epochs(again.image, "a") == [(0, 0)]

    @pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill -9", "power cut"])
    def test_no_leader_has_an_epoch_that_a_crash_can_take_back(
        self, files: CountedFiles, store: BlockingStore, is_power_cut: bool
    ) -> None:
        topic = store.create_topic("a", ALONE, {})
        logs = {partition("a"): found_log(topic, 0, unclean=True)}
        led = 0
        for step in range(1, 40):
            disk = files.killed()
            disk.crash_at_step = disk.steps + step
            orders = ScriptedRoleChanges()
            try:
                BlockingStore(disk, DATA, orders=orders, found=logs)
            except Crashed:
                pass
            else:
                assert orders.given
            after = disk.crash(Random(step)) if is_power_cut else disk.killed()
            (now,) = epochs(stored(after), "a")
            assert now in ((0, 0), (1, 1))
            if orders.given:
                led += 1
                assert now == (1, 1)
        assert 20 < led < 39

    def test_a_disk_that_refuses_the_epochs_allows_no_leader(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        topic = store.create_topic("a", ALONE, {})
        files.refusals = (errno.ENOSPC,)
        orders = ScriptedRoleChanges()
        logs = {partition("a"): found_log(topic, 0, unclean=True)}
        with pytest.raises(StoreFailed):
            BlockingStore(files, DATA, orders=orders, found=logs)
        assert orders.given == []

    def test_what_is_deleted_is_no_longer_known_once_its_logs_are_gone(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        topics = [store.create_topic(name, ALONE, {}) for name in ("a", "b")]
        for topic in topics:
            store.begin_topic_deletion(topic.topic_id)
        orders = ScriptedRoleChanges()
        orders.failures[partition("a")] = KlogError("its disk is away")
        again = BlockingStore(files, DATA, orders=orders)
        assert [type(order) for order in orders.given[0]] == [RoleRemoval, RoleRemoval]
        for image in (again.image, stored(files)):
            assert [topic.name for topic in image.deleting.values()] == ["a"]


class TestPublishing:
    def test_the_image_comes_before_its_role_changes_and_both_after_the_write(
        self, files: CountedFiles
    ) -> None:
        seen: list[str] = []

        class Watched(ScriptedRoleChanges):
            def apply(self, orders: Sequence[RoleChange], done: Any) -> None:
                kinds = sorted({type(order).__name__ for order in orders})
                seen.append(f"{','.join(kinds)} of {len(watched.images)} images")
                super().apply(orders, done)

        watched = store = BlockingStore(files, DATA, orders=Watched()).register_broker()
        begun = len(store.images)
        topic = store.create_topic("a", ALONE, {"retention.ms": "5"})
        store.create_partitions("a", 1, ALONE)
        store.update_topic_configs("a", lambda _: {})
        store.delete_topic(topic.topic_id)
        assert seen == [
            f"RoleAssignment of {begun + 1} images",
            f"RoleAssignment of {begun + 1} images",
            f"RoleAssignment of {begun + 2} images",
            f"RoleRemoval of {begun + 4} images",
        ]
        # Added partitions change no topic's settings, so the second image names none.
        assert [names for _, names in store.images[begun:]] == [["a"], [], ["a"], ["a"], []]
        versions = [image.version for image, _ in store.images]
        assert versions == sorted(set(versions))

    def test_done_is_called_when_the_role_changes_are_answered(self, store: BlockingStore) -> None:
        store.role_changes.is_held = True
        outcomes: list[Any] = []
        store.store.create_topics([NewTopic("a", ALONE, {})], outcomes.append)
        assert store.image.topic("a") is not None
        assert outcomes == []
        # Another change is made before the role changes of the first one are answered.
        store.allocate_producer_ids()
        store.role_changes.release()
        assert outcomes == [[store.image.topic("a")]]

    def test_a_topic_is_led_when_all_its_logs_are_there(self, store: BlockingStore) -> None:
        store.create_topic("a", ALONE * 30, {})
        making, *leading = store.role_changes.given
        assert led_in(making) == [] and len(making) == 30
        assert all(isinstance(order, RoleAssignment) and order.is_new for order in making)
        assert [number for orders in leading for number in led_in(orders)] == list(range(30))

    def test_a_topic_that_is_deleted_before_it_is_led_is_not_led(
        self, store: BlockingStore
    ) -> None:
        store.role_changes.is_held = True
        outcomes: list[Any] = []
        store.store.create_topics([NewTopic("a", ALONE, {})], outcomes.extend)
        store.store.delete_topic(store.image.topics["a"].topic_id, outcomes.append)
        store.role_changes.release()
        assert [each.name for each in outcomes] == ["a", "a"]
        assert [led_in(orders) for orders in store.role_changes.given] == [[], []]

    def test_only_new_partitions_get_roles_and_as_new_ones(self, store: BlockingStore) -> None:
        store.create_topic("a", ALONE * 2, {})
        store.create_partitions("a", 2, ALONE * 2)
        orders = store.role_changes.given[-1]
        assert [order.topic_partition.partition for order in orders] == [2, 3]
        assert all(isinstance(order, RoleAssignment) and order.is_new for order in orders)


class TestQueue:
    def test_the_changes_of_a_turn_go_in_one_write_each_made_of_the_one_before(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        before, given = files.writes, len(store.role_changes.given)
        store.loop.is_held = True
        outcomes: dict[str, Any] = {}

        def note(name: str) -> Any:
            return lambda outcome: outcomes.__setitem__(name, outcome)

        asked = store.store
        asked.create_topics([NewTopic("a", ALONE, {})], note("a"))
        asked.create_topics([NewTopic("b", ALONE, {}), NewTopic("a", ALONE, {})], note("b, a"))
        asked.update_topic_configs("a", lambda had: {**had, "x": "1"}, note("x"))
        asked.update_topic_configs("a", lambda had: {**had, "y": "2"}, note("y"))
        asked.create_partitions("a", 1, ALONE, note("grown"))
        asked.allocate_producer_ids(note("ids"))
        assert files.writes == before
        store.loop.run()
        assert files.writes == before + 1
        topic = stored(files).topics["a"]
        assert (topic.configs, len(topic.partitions)) == ({"x": "1", "y": "2"}, 2)
        assert outcomes["grown"] == topic
        assert [type(each) for each in outcomes["b, a"]] == [Topic, TopicExists]
        # Orders of one topic that come from two changes are answered apart.
        named = [
            [order.topic_partition for order in each] for each in store.role_changes.given[given:]
        ]
        assert named[0] == [partition("a"), partition("b")]
        assert sorted(named[1:]) == [[partition("a")], [partition("a", 1)], [partition("b")]]

    def test_one_write_takes_so_many_changes_and_the_next_one_the_rest(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        before = files.writes
        store.loop.is_held = True
        blocks: list[Any] = []
        for _ in range(2 * CHANGES_PER_WRITE + 1):
            store.store.allocate_producer_ids(blocks.append)
        store.loop.run()
        assert files.writes == before + 3
        assert [block.first for block in blocks] == [1000 * n for n in range(len(blocks))]
        assert len(blocks) == 2 * CHANGES_PER_WRITE + 1

    def test_a_write_that_fails_fails_all_that_were_in_it_and_no_other(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        store.loop.is_held = True
        outcomes: list[Any] = []
        files.refusals = (errno.ENOSPC,)
        store.store.create_topics([NewTopic("?", ALONE, {})], outcomes.extend)
        store.store.create_topics([NewTopic("b", ALONE, {})], outcomes.extend)
        store.store.allocate_producer_ids(outcomes.append)
        store.loop.run()
        assert [type(each) for each in outcomes] == [InvalidTopicName, StoreFailed, StoreFailed]
        assert store.role_changes.given == []
        store.loop.is_held = False
        assert store.allocate_producer_ids().first == 0
        assert not stored(files).topics

    def test_many_changes_are_planned_in_slices(self, store: BlockingStore) -> None:
        """Other requests are served between slices; their changes go with the next slice."""
        store.loop.is_held = True
        outcomes: list[Any] = []
        many = [NewTopic(f"t{number}", ALONE, {}) for number in range(2000)]
        store.store.create_topics(many, outcomes.extend)
        turn = store.loop.turn
        store.loop.run(turns=3)
        assert not store.image.topics
        store.store.allocate_producer_ids(outcomes.append)
        store.loop.run()
        assert store.loop.turn - turn > 8
        assert len(outcomes) == 2001
        assert sum(isinstance(each, Topic) for each in outcomes) == 2000


class TestPartitionsThatCannotBeMade:
    FULL = KlogError("the disk is full")

    def test_a_topic_is_taken_back(self, files: CountedFiles, store: BlockingStore) -> None:
        store.role_changes.failures[partition("a", 1)] = self.FULL
        new = [NewTopic("a", ALONE * 3, {}), NewTopic("b", ALONE, {})]
        failed, made = store.create_topics(new)
        assert failed is self.FULL
        assert isinstance(made, Topic)
        # Deleting fails here as making did: what could not be made may be half there.
        assert [topic.name for topic in stored(files).deleting.values()] == ["a"]
        store.role_changes.failures.clear()
        BlockingStore(files, DATA)
        assert set(stored(files).topics) == {"b"}
        assert not stored(files).deleting

    def test_nothing_of_a_topic_that_is_taken_back_was_led(self, store: BlockingStore) -> None:
        """A producer may write to a partition as soon as it is led."""
        store.role_changes.failures[partition("a", 1)] = self.FULL
        with pytest.raises(KlogError, match="the disk is full"):
            store.create_topic("a", ALONE * 3, {})
        making, deleting = store.role_changes.given
        assert led_in(making) == []
        assert [type(order) for order in deleting] == [RoleRemoval] * 3

    @pytest.mark.parametrize("way", ["no room", "it has grown"])
    def test_a_topic_that_cannot_be_taken_back_is_completed_later(
        self, files: CountedFiles, store: BlockingStore, way: str
    ) -> None:
        store.role_changes.failures[partition("a", 1)] = self.FULL
        store.role_changes.is_held = True
        outcomes: list[Any] = []
        store.store.create_topics([NewTopic("a", ALONE * 2, {})], outcomes.extend)
        if way == "no room":
            files.refusals = (errno.ENOSPC,)
        else:
            store.store.create_partitions("a", 2, ALONE, lambda _: None)
        store.role_changes.release()
        assert outcomes == [self.FULL]
        assert set(stored(files).topics) == {"a"}
        assert not stored(files).deleting
        store.role_changes.failures.clear()
        store.loop.run_timers()
        assert sorted(led_in(store.role_changes.given[-1])) == [0, 1]
        assert store.loop.timers == []

    def test_a_topic_that_is_led_in_part_stays(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        store.role_changes.is_held = True
        outcomes: list[Any] = []
        store.store.create_topics([NewTopic("a", ALONE * 2, {})], outcomes.extend)
        store.role_changes.release_one()
        store.role_changes.failures[partition("a", 1)] = self.FULL  # its log is lost now
        store.role_changes.release()
        assert outcomes == [self.FULL]
        assert set(stored(files).topics) == {"a"}
        store.role_changes.failures.clear()
        store.loop.run_timers()
        assert led_in(store.role_changes.given[-1]) == [1]

    def test_an_internal_topic_stays_and_is_completed_later(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        """Coordinators need the topic: the partitions that exist serve."""
        name = "__consumer_offsets"
        store.role_changes.failures[partition(name, 1)] = self.FULL
        with pytest.raises(KlogError, match="the disk is full"):
            store.create_topic(name, ALONE * 3, {})
        assert set(stored(files).topics) == {name}
        assert not stored(files).deleting
        assert led_in(store.role_changes.given[-1]) == [0, 2]
        store.role_changes.failures.clear()
        store.loop.run_timers()
        (order,) = store.role_changes.given[-1]
        assert isinstance(order, RoleAssignment)
        assert (order.topic_partition, order.is_new) == (partition(name, 1), False)
        assert led_in([order]) == [1]
        assert store.loop.timers == []

    def test_role_changes_are_repeated_until_the_partitions_exist(
        self, store: BlockingStore
    ) -> None:
        topic = store.create_topic("a", ALONE, {})
        store.role_changes.failures[partition("a", 2)] = self.FULL
        with pytest.raises(KlogError, match="the disk is full"):
            store.create_partitions("a", 1, ALONE * 2)
        assert len(store.image.topics["a"].partitions) == 3
        for _ in range(2):
            ((delay_ms, _),) = store.loop.timers
            assert delay_ms == RETRY_MS
            store.loop.run_timers()
            (order,) = store.role_changes.given[-1]
            # The partition is not new: its log may be in a directory that went offline.
            assert isinstance(order, RoleAssignment)
            assert (order.topic_partition, order.is_new) == (partition("a", 2), False)
            assert order.topic_id == topic.topic_id
        store.role_changes.failures.clear()
        store.loop.run_timers()
        assert store.loop.timers == []

    def test_those_of_a_deleted_topic_are_not(self, store: BlockingStore) -> None:
        topic = store.create_topic("a", ALONE, {})
        store.role_changes.failures[partition("a", 1)] = self.FULL
        with pytest.raises(KlogError):
            store.create_partitions("a", 1, ALONE)
        store.role_changes.failures.clear()
        store.delete_topic(topic.topic_id)
        given = len(store.role_changes.given)
        store.loop.run_timers()
        assert len(store.role_changes.given) == given
        assert store.loop.timers == []

    def test_those_of_a_start_are_too(self, files: CountedFiles, store: BlockingStore) -> None:
        store.create_topic("a", ALONE * 300, {})
        orders = ScriptedRoleChanges()
        orders.failures = {partition("a", number): self.FULL for number in range(250)}
        again = BlockingStore(files, DATA, orders=orders)
        orders.failures.clear()
        while again.loop.timers:
            again.loop.run_timers()
        retried = [order.topic_partition.partition for each in orders.given[1:] for order in each]
        assert retried == list(range(250))
        assert max(map(len, orders.given[1:])) <= 100


class TestPartitionEpochsInTheFile:
    def test_without_any_the_file_is_as_it_was(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        store.create_topic("a", ALONE, {})
        assert b"partition_epochs" not in files.read_bytes(DATA / FILE_NAME)

    def test_epochs_are_written_next_to_the_fields_of_older_releases(
        self, files: CountedFiles, store: BlockingStore
    ) -> None:
        topic = store.create_topic("a", ALONE * 2, {})
        logs = {partition("a", 1): found_log(topic, 5, unclean=True)}
        BlockingStore(files, DATA, found=logs)
        text = files.read_bytes(DATA / FILE_NAME).decode()
        assert '"partitions":[[[1],[1],1,0],[[1],[1],1,6]]' in text
        assert '"partition_epochs":[0,1]' in text
        assert '"version":1' in text
        assert epochs(stored(files), "a") == [(0, 0), (6, 1)]
