"""CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs and IncrementalAlterConfigs.

The metadata store is real, on a temporary file; logs and the network are stand-ins.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from klog_broker.api import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from klog_broker.config import SETTINGS, TOPIC_SETTINGS
from klog_broker.log.errors import LogStorageError
from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicId, TopicPartition
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from pyspark_klog.storage.text_files import encode_topic_id
from tests.support.api.topic_world import World, new
from tests.support.cluster.fake_logs import FakeLog

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4
NO_ID = UUID(int=0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class TestCreateTopics:
    def test_a_topic_its_logs_and_its_id(self, world: World) -> None:
        (result,) = world.create(new("a", 3, 1, retention_ms="5"))
        topic = world.store.image.topic("a")
        assert (result.error_code, result.error_message) == (0, None)
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert topic is not None
        assert result.topic_id == topic.topic_id != NO_ID
        assert topic.configs == {"retention.ms": "5"}
        assert list(world.logs.by_partition) == [TopicPartition("a", number) for number in range(3)]
        for log in world.logs.by_partition.values():
            assert (log.topic_id, log.leader_epoch) == (topic.topic_id, 0)
            assert log.config.retention_ms == 5
        assert world.image_again().topic("a") == topic

    @pytest.mark.parametrize("version", range(8))
    def test_every_version(self, world: World, version: int) -> None:
        (result,) = world.create(new("a", 1, 1), version=version)
        assert (result.name, result.error_code) == ("a", 0)

    def test_the_brokers_defaults(self, tmp_path: Path) -> None:
        world = World(tmp_path, "num.partitions=4")
        (result,) = world.create(new("a"))
        assert (result.num_partitions, result.replication_factor) == (4, 1)

    def test_the_settings_come_back_with_their_sources(self, tmp_path: Path) -> None:
        world = World(tmp_path, "log.segment.bytes=5000")
        (result,) = world.create(new("a", retention_ms="5"), version=5)
        by_name = {config.name: config for config in result.configs}
        assert set(by_name) == set(TOPIC_SETTINGS)
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("5", 1)
        assert by_name["segment.bytes"].value == "5000"
        assert by_name["segment.bytes"].config_source == 4
        assert by_name["flush.ms"].config_source == 5
        assert not any(config.read_only or config.is_sensitive for config in result.configs)

    def test_only_validated(self, world: World) -> None:
        good, bad = world.create(new("a", 2), new("b", 0), validate_only=True)
        assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, NO_ID)
        assert bad.error_code == ErrorCode.INVALID_PARTITIONS
        assert not world.store.image.topics
        assert not world.logs.by_partition

    def test_by_hand(self, world: World) -> None:
        (result,) = world.create(new("a", by_hand={1: [1], 0: [1]}))
        assert (result.error_code, result.num_partitions) == (0, 2)

    @pytest.mark.parametrize(
        "topic, code, text",
        [
            (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII letters"),
            (new("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "topic there already exists"),
            (new("my_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION, "existing topic my.topic"),
            (new("a", 0), ErrorCode.INVALID_PARTITIONS, "0 partitions are asked for"),
            (new("a", -2), ErrorCode.INVALID_PARTITIONS, "-2 partitions are asked for"),
            (new("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "at most 10000"),
            (new("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "expected 1 to 1"),
            (new("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "0 replicas"),
            (new("a", 1, -1, {0: [1]}), ErrorCode.INVALID_REQUEST, "must be -1"),
            (new("a", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST, "must be -1"),
            (
                new("a", by_hand={0: [1], 2: [1]}),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "from 0 without a gap",
            ),
            (new("a", by_hand={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
            (new("a", by_hand={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice: [1, 1]"),
            (new("a", by_hand={0: [2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive: [2]"),
            (new("a", retention_ms="x"), ErrorCode.INVALID_CONFIG, "retention.ms=x is refused"),
            (new("a", retention_ms=None), ErrorCode.INVALID_CONFIG, "has no value (null)"),
            (new("a", retentionms="1"), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        ],
    )
    def test_refusals(
        self, world: World, topic: CreatableTopic, code: ErrorCode, text: str
    ) -> None:
        world.create(new("there"), new("my.topic"))
        before = world.store.image
        (result,) = world.create(topic)
        assert (ErrorCode(result.error_code), text in result.error_message) == (code, True)
        assert world.store.image is before

    def test_a_partition_that_is_assigned_twice(self, world: World) -> None:
        topic = new("a", by_hand={0: [1]})
        topic.assignments *= 2
        (result,) = world.create(topic)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert result.error_message == "partition 0 is assigned twice"

    def test_each_topic_by_itself_and_a_name_twice_is_answered_once(self, world: World) -> None:
        results = world.create(new("a"), new("b", 0), new("c"), new("a"))
        assert [(r.name, ErrorCode(r.error_code).name) for r in results] == [
            ("a", "INVALID_REQUEST"),
            ("b", "INVALID_PARTITIONS"),
            ("c", "NONE"),
        ]
        assert set(world.store.image.topics) == {"c"}

    def test_the_partitions_of_one_request_are_bounded_in_all(self, world: World) -> None:
        results = world.create(new("a", 6000), new("b", 6000))
        assert {ErrorCode(r.error_code) for r in results} == {ErrorCode.POLICY_VIOLATION}
        assert "asks for 12000 partitions" in results[0].error_message
        assert not world.store.image.topics

    def test_a_disk_that_refuses_the_logs(self, world: World) -> None:
        world.logs.is_full = True
        (result,) = world.create(new("a"))
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_the_same_error_everywhere(self) -> None:
        request = CreateTopicsRequest(topics=[new("a"), new("b")])
        response: Any = create_topics.API.error_response(request, ErrorCode.INVALID_REQUEST)
        assert [row.error_code for row in response.topics] == [42, 42]


class TestDeleteTopics:
    def delete(self, world: World, version: int, *asked: Any) -> list[Any]:
        if version >= 6:
            request = DeleteTopicsRequest(topics=list(asked))
        else:
            request = DeleteTopicsRequest(topic_names=list(asked))
        return list(world.call_api(delete_topics, request, version).responses)

    @pytest.mark.parametrize("version", range(6))
    def test_by_name(self, world: World, version: int) -> None:
        world.create(new("a", 2))
        deleted, unknown = self.delete(world, version, "a", "b")
        assert (deleted.name, deleted.error_code) == ("a", 0)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not world.store.image.topics
        assert not world.store.image.deleting
        assert not world.logs.by_partition
        assert world.checked == [TopicPartition("a", 0), TopicPartition("a", 1)]
        assert world.deleted == ["a"]

    def test_by_id(self, world: World) -> None:
        (made,) = world.create(new("a"))
        stale = DeleteTopicState(topic_id=UUID(int=77))
        deleted, unknown = self.delete(world, 6, DeleteTopicState(topic_id=made.topic_id), stale)
        assert (deleted.name, deleted.topic_id, deleted.error_code) == ("a", made.topic_id, 0)
        assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
        assert encode_topic_id(UUID(int=77)) in unknown.error_message

    def test_a_recreated_topic_has_another_id(self, world: World) -> None:
        (old,) = world.create(new("a"))
        self.delete(world, 5, "a")
        (again,) = world.create(new("a"))
        assert again.topic_id not in (old.topic_id, NO_ID)
        (result,) = self.delete(world, 6, DeleteTopicState(topic_id=old.topic_id))
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert world.store.image.topic("a") is not None

    def test_requests_that_cannot_be_meant(self, world: World) -> None:
        (made,) = world.create(new("a"))
        results = self.delete(
            world,
            6,
            DeleteTopicState(name="a", topic_id=made.topic_id),
            DeleteTopicState(),
            DeleteTopicState(name="a"),
            DeleteTopicState(name="a"),
        )
        assert [ErrorCode(r.error_code).name for r in results] == ["INVALID_REQUEST"] * 3
        assert set(world.store.image.topics) == {"a"}

    @pytest.mark.parametrize("first", ["name", "id", "id twice"])
    def test_a_topic_named_by_name_and_by_id_is_refused_and_not_deleted(
        self, world: World, first: str
    ) -> None:
        (made,) = world.create(new("a"))
        world.create(new("b"))
        by_name, by_id = DeleteTopicState(name="a"), DeleteTopicState(topic_id=made.topic_id)
        requested = {
            "name": [by_name, by_id],
            "id": [by_id, by_name],
            "id twice": [by_id, by_id, by_name],
        }[first]
        *refused, deleted = self.delete(world, 6, *requested, DeleteTopicState(name="b"))
        assert {result.error_code for result in refused} == {ErrorCode.INVALID_REQUEST}
        assert len(refused) == len(requested) - 1
        assert (refused[-1].name, refused[-1].topic_id) == ("a", made.topic_id)
        assert "by its name and by its id" in refused[-1].error_message
        assert (deleted.name, deleted.error_code) == ("b", ErrorCode.NONE)
        assert set(world.store.image.topics) == {"a"}

    @pytest.mark.parametrize(
        "version, code", [(2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    def test_where_deletion_is_off(self, tmp_path: Path, version: int, code: ErrorCode) -> None:
        world = World(tmp_path, "delete.topic.enable=false")
        world.create(new("a"))
        (result,) = self.delete(world, version, "a")
        assert result.error_code == code
        assert world.store.image.topic("a") is not None

    def test_the_brokers_own_topics_stay(self, world: World) -> None:
        world.create(new("__consumer_offsets"))
        (result,) = self.delete(world, 5, "__consumer_offsets")
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "holds this broker's own state" in result.error_message

    def test_what_could_not_be_finished_is_finished_at_the_next_start(self, world: World) -> None:
        world.create(new("a"))
        world.logs.is_full = True
        (result,) = self.delete(world, 5, "a")
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.store.image.topic("a") is None
        assert len(world.image_again().deleting) == 1
        world.logs.is_full = False
        world.start_broker()
        assert not world.image_again().deleting
        assert not world.logs.by_partition


def test_a_start_makes_the_logs_that_a_crash_left_out(world: World) -> None:
    world.create(new("a", 2))
    world.logs.by_partition.clear()
    world.start_broker()
    assert len(world.logs.by_partition) == 2


def test_a_start_does_not_touch_the_logs_of_a_newer_topic(world: World) -> None:
    (made,) = world.create(new("a"))
    world.loop.is_held = True
    world.store.delete_topic(TopicId(made.topic_id), lambda _: None)
    world.loop.run(1)
    other = FakeLog(TopicPartition("a", 0), TopicId(UUID(int=9)), LogConfig())
    world.logs.by_partition[other.topic_partition] = other
    world.start_broker()
    assert world.logs.by_partition == {TopicPartition("a", 0): other}
    assert not world.image_again().deleting


class TestCreatePartitions:
    def grow(self, world: World, *asked: tuple[Any, ...], version: int = 3, **more: Any) -> Any:
        topics = [
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=[CreatePartitionsAssignment(broker_ids=ids) for ids in by_hand[0]]
                if by_hand
                else None,
            )
            for name, count, *by_hand in asked
        ]
        request = CreatePartitionsRequest(topics=topics, **more)
        return world.call_api(create_partitions, request, version).results

    @pytest.mark.parametrize("version", range(4))
    def test_more_of_them(self, world: World, version: int) -> None:
        world.create(new("a", 1))
        (result,) = self.grow(world, ("a", 3), version=version)
        assert (result.name, result.error_code, result.error_message) == ("a", 0, None)
        assert len(world.logs.by_partition) == 3
        assert len(world.image_again().topic("a").partitions) == 3

    def test_older_topics_that_may_lie_on_a_lost_disk_are_not_created_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def check_complete() -> None:
            raise LogStorageError("a directory is offline")

        world.create(new("a", 2))
        del world.logs.by_partition[TopicPartition("a", 1)]
        monkeypatch.setattr(world.logs, "check_complete", check_complete)
        world.start_broker()
        (result,) = self.grow(world, ("a", 4))
        assert result.error_code == 0
        assert sorted(partition.partition for partition in world.logs.by_partition) == [0, 2, 3]

    def test_a_partition_without_free_disk_space_is_created_once_there_is_some(
        self, world: World
    ) -> None:
        world.create(new("a", 1))
        world.logs.is_full = True
        (result,) = self.grow(world, ("a", 3))
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.loop.run_timers()
        assert len(world.logs.by_partition) == 1
        world.logs.is_full = False
        world.loop.run_timers()
        assert len(world.logs.by_partition) == 3
        assert world.loop.timers == []

    def test_by_hand(self, world: World) -> None:
        world.create(new("a", 1))
        (result,) = self.grow(world, ("a", 3, [[1], [1]]))
        assert result.error_code == 0

    def test_only_validated(self, world: World) -> None:
        world.create(new("a", 1))
        good, bad = self.grow(world, ("a", 3), ("b", 3), validate_only=True)
        assert (good.error_code, bad.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert len(world.store.image.topics["a"].partitions) == 1

    @pytest.mark.parametrize(
        "asked, code, text",
        [
            (("b", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic b"),
            (("a", 2), ErrorCode.INVALID_PARTITIONS, "topic a has 2 partitions already"),
            (("a", 1), ErrorCode.INVALID_PARTITIONS, "cannot be taken away"),
            (("a", -1), ErrorCode.INVALID_PARTITIONS, "-1 are asked for"),
            (("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "at most 10000"),
            (("a", 3, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "to 2 partitions, but 1"),
            (("a", 3, [[7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not alive: [7]"),
            (("__consumer_offsets", 9), ErrorCode.INVALID_REQUEST, "its partitions are fixed"),
        ],
    )
    def test_refusals(
        self, world: World, asked: tuple[Any, ...], code: ErrorCode, text: str
    ) -> None:
        world.create(new("a", 2), new("__consumer_offsets"))
        (result,) = self.grow(world, asked)
        assert (ErrorCode(result.error_code), text in result.error_message) == (code, True)

    def test_a_name_twice_is_answered_once(self, world: World) -> None:
        world.create(new("a", 2))
        (result,) = self.grow(world, ("a", 3), ("a", 4))
        assert result.error_code == ErrorCode.INVALID_REQUEST


class TestDescribeConfigs:
    def describe(
        self,
        world: World,
        kind: int,
        name: str,
        keys: list[str] | None = None,
        version: int = 4,
        **more: Any,
    ) -> Any:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[resource], **more)
        (result,) = world.call_api(describe_configs, request, version).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result

    @pytest.mark.parametrize("version", range(5))
    def test_a_topic(self, world: World, version: int) -> None:
        world.create(new("a", retention_ms="5"))
        result = self.describe(world, TOPIC, "a", version=version)
        assert (result.error_code, result.error_message) == (0, None)
        by_name = {config.name: config for config in result.configs}
        assert set(by_name) == set(TOPIC_SETTINGS)
        assert by_name["retention.ms"].value == "5"
        assert by_name["cleanup.policy"].value == "delete"
        if version == 0:
            assert by_name["flush.ms"].is_default
            assert not by_name["retention.ms"].is_default

    def test_some_settings_of_a_topic_with_synonyms_and_text(self, tmp_path: Path) -> None:
        world = World(tmp_path, "log.segment.bytes=5000")
        world.create(new("a", segment_bytes="100"))
        result = self.describe(
            world,
            TOPIC,
            "a",
            ["segment.bytes", "no.such"],
            include_synonyms=True,
            include_documentation=True,
        )
        (config,) = result.configs
        assert (config.name, config.value, config.config_source) == ("segment.bytes", "100", 1)
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("segment.bytes", "100", 1),
            ("log.segment.bytes", "5000", 4),
            ("log.segment.bytes", "1073741824", 5),
        ]
        assert config.config_type == 3
        assert config.documentation == TOPIC_SETTINGS["segment.bytes"].doc
        assert not config.read_only

    def test_without_synonyms_and_text_unless_asked_for(self, world: World) -> None:
        world.create(new("a"))
        result = self.describe(world, TOPIC, "a")
        assert all(config.synonyms == [] for config in result.configs)
        assert all(config.documentation is None for config in result.configs)

    @pytest.mark.parametrize(("kind", "name"), [(TOPIC, "a"), (BROKER, "1")])
    def test_an_empty_list_of_names_asks_for_all(self, world: World, kind: int, name: str) -> None:
        """An empty list of names means all settings, as in Kafka."""
        world.create(new("a"))
        found = self.describe(world, kind, name, []).configs
        assert found == self.describe(world, kind, name).configs != []

    def test_this_broker(self, tmp_path: Path) -> None:
        world = World(tmp_path, "log.retention.hours=2")
        result = self.describe(world, BROKER, "1", include_synonyms=True)
        by_name = {config.name: config for config in result.configs}
        assert set(by_name) == set(SETTINGS)
        assert by_name["broker.id"].value == "1"
        assert by_name["log.retention.ms"].value is None
        assert by_name["log.retention.ms"].config_source == 5
        hours = by_name["log.retention.hours"]
        assert (hours.value, hours.config_source) == ("2", 4)
        assert [(each.value, each.source) for each in hours.synonyms] == [("2", 4), ("168", 5)]
        assert {config.name for config in result.configs if not config.read_only} == {
            name for name, row in SETTINGS.items() if row.dynamic
        }

    def test_the_settings_of_all_brokers_are_none(self, world: World) -> None:
        result = self.describe(world, BROKER, "")
        assert (result.error_code, result.configs) == (0, [])

    @pytest.mark.parametrize("kind", [16, 32])
    def test_client_metrics_and_groups_have_no_settings(self, world: World, kind: int) -> None:
        result = self.describe(world, kind, "x")
        assert (result.error_code, result.configs) == (0, [])

    @pytest.mark.parametrize("keys", [None, ["root"], ["kafka"]])
    def test_the_broker_has_one_logger(self, world: World, keys: list[str] | None) -> None:
        result = self.describe(world, 8, "1", keys)
        assert result.error_code == 0
        rows = [(each.name, each.config_source) for each in result.configs]
        assert rows == ([] if keys == ["kafka"] else [("root", 6)])

    @pytest.mark.parametrize(
        "kind, name, code, text",
        [
            (TOPIC, "b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic b"),
            (TOPIC, "b c", ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII letters"),
            (BROKER, "2", ErrorCode.INVALID_REQUEST, "this is broker 1"),
            (BROKER, "x", ErrorCode.INVALID_REQUEST, "no settings of broker 'x'"),
            (8, "", ErrorCode.INVALID_REQUEST, "the name of the resource is empty"),
            (8, "2", ErrorCode.INVALID_REQUEST, "this is broker 1"),
            (16, "", ErrorCode.INVALID_REQUEST, "the name of the resource is empty"),
            (32, "", ErrorCode.INVALID_REQUEST, "the name of the resource is empty"),
            (99, "g", ErrorCode.INVALID_REQUEST, "is not served: 2 (topic) and 4 (broker) are"),
        ],
    )
    def test_refusals(self, world: World, kind: int, name: str, code: ErrorCode, text: str) -> None:
        result = self.describe(world, kind, name)
        assert (ErrorCode(result.error_code), text in result.error_message) == (code, True)


class TestIncrementalAlterConfigs:
    def alter(
        self,
        world: World,
        *changes: tuple[str, int, str | None],
        topic: str = "a",
        kind: int = TOPIC,
        version: int = 1,
        **more: Any,
    ) -> Any:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=topic,
            configs=[
                AlterableConfig(name=name, config_operation=operation, value=value)
                for name, operation, value in changes
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], **more)
        (result,) = world.call_api(incremental_alter_configs, request, version).responses
        return result

    @pytest.mark.parametrize("version", range(2))
    def test_what_is_set_counts_at_once_and_after_a_restart(
        self, world: World, version: int
    ) -> None:
        world.create(new("a", 2))
        result = self.alter(world, ("retention.ms", SET, "5"), version=version)
        assert (result.error_code, result.error_message) == (0, None)
        assert [log.config.retention_ms for log in world.logs.by_partition.values()] == [5, 5]
        assert world.image_again().topic("a").configs == {"retention.ms": "5"}

    def test_what_is_deleted_is_the_brokers_again(self, world: World) -> None:
        world.create(new("a", retention_ms="5", segment_bytes="100"))
        result = self.alter(world, ("retention.ms", DELETE, None), ("not.set", DELETE, None))
        assert result.error_code == 0
        assert world.store.image.topics["a"].configs == {"segment.bytes": "100"}
        assert world.logs.by_partition[TopicPartition("a", 0)].config.retention_ms == 604_800_000

    def test_lists_are_added_to_and_taken_from(self, world: World) -> None:
        world.create(new("a"))
        self.alter(world, ("cleanup.policy", APPEND, "compact,delete,compact"))
        assert world.store.image.topics["a"].configs == {"cleanup.policy": "delete,compact"}
        self.alter(world, ("cleanup.policy", SUBTRACT, "delete,nothing"))
        assert world.store.image.topics["a"].configs == {"cleanup.policy": "compact"}
        assert world.logs.by_partition[TopicPartition("a", 0)].config.compact

    def test_only_validated(self, world: World) -> None:
        world.create(new("a"))
        assert self.alter(world, ("retention.ms", SET, "5"), validate_only=True).error_code == 0
        bad = self.alter(world, ("retention.ms", SET, "x"), validate_only=True)
        assert bad.error_code == ErrorCode.INVALID_CONFIG
        assert world.store.image.topics["a"].configs == {}

    @pytest.mark.parametrize(
        "change, code, text",
        [
            (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG, "must be a whole number"),
            (("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
            (("retention.mss", APPEND, "1"), ErrorCode.INVALID_CONFIG, "mean retention.ms?"),
            (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "has no value (null)"),
            (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "is no list"),
            (("cleanup.policy", APPEND, "burn"), ErrorCode.INVALID_CONFIG, "one of compact"),
            (("retention.ms", 4, "1"), ErrorCode.INVALID_REQUEST, "operation 4 is none of 0 (set)"),
            (("retention.ms", -1, "1"), ErrorCode.INVALID_REQUEST, "operation -1"),
        ],
    )
    def test_refusals_change_nothing(
        self, world: World, change: tuple[str, int, str | None], code: ErrorCode, text: str
    ) -> None:
        world.create(new("a"))
        before = world.store.image
        result = self.alter(world, ("segment.bytes", SET, "100"), change)
        assert (ErrorCode(result.error_code), text in result.error_message) == (code, True)
        assert world.store.image is before

    def test_what_cannot_be_altered(self, world: World) -> None:
        world.create(new("a"))
        unknown = self.alter(world, topic="b")
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        misnamed = self.alter(world, topic="a b")
        assert misnamed.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        broker = self.alter(world, ("num.partitions", SET, "2"), topic="1", kind=BROKER)
        assert broker.error_code == ErrorCode.INVALID_REQUEST
        assert "restart the broker" in broker.error_message
        other = self.alter(world, topic="x", kind=8)
        assert other.error_code == ErrorCode.INVALID_REQUEST
        twice = self.alter(world, ("flush.ms", SET, "1"), ("flush.ms", DELETE, None))
        assert twice.error_message == "these settings are named twice: flush.ms"

    def test_a_resource_twice_fails_in_both_places(self, world: World) -> None:
        world.create(new("a"))
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=[])
        request = IncrementalAlterConfigsRequest(resources=[resource, resource])
        results = world.call_api(incremental_alter_configs, request).responses
        assert [row.error_code for row in results] == [ErrorCode.INVALID_REQUEST] * 2

    def test_a_disk_that_fails(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.create(new("a"))

        def fail(self: RealFiles, path: Path, data: bytes) -> None:
            raise OSError(5, "no")

        monkeypatch.setattr(RealFiles, "write_atomically", fail)
        result = self.alter(world, ("retention.ms", SET, "5"))
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert world.logs.by_partition[TopicPartition("a", 0)].config.retention_ms == 604_800_000


@pytest.mark.parametrize(
    "module, request_, rows",
    [
        (delete_topics, DeleteTopicsRequest(topic_names=["a", "b"]), "responses"),
        (
            create_partitions,
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a")] * 2),
            "results",
        ),
        (
            describe_configs,
            DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_name="a")] * 2),
            "results",
        ),
        (
            incremental_alter_configs,
            IncrementalAlterConfigsRequest(resources=[AlterConfigsResource()] * 2),
            "responses",
        ),
    ],
)
def test_one_error_for_a_whole_request(module: Any, request_: Any, rows: str) -> None:
    response = module.API.error_response(request_, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [row.error_code for row in getattr(response, rows)] == [-1, -1]


def test_settings_that_are_named_several_times_are_answered_once(world: World) -> None:
    world.create(new("a"))

    def described_keys(*keys: list[str] | None) -> set[str]:
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name="a", configuration_keys=each)
            for each in keys
        ]
        request = DescribeConfigsRequest(resources=resources)
        (result,) = world.call_api(describe_configs, request).results
        return {config.name for config in result.configs}

    assert described_keys(["retention.ms"], ["flush.ms"], ["flush.ms"]) == {
        "retention.ms",
        "flush.ms",
    }
    assert described_keys(["retention.ms"], None) == described_keys(None) == set(TOPIC_SETTINGS)
    assert (
        described_keys(["flush.ms"], []) == described_keys([], ["flush.ms"]) == described_keys(None)
    )


class TestAskingForTopics:
    """Metadata requests create missing topics."""

    def test_no_more_than_one_request_may_create(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metadata, "MAX_PARTITIONS_PER_REQUEST", 3)
        asked = [MetadataRequestTopic(name=f"t{number}") for number in range(5)]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for codes in ([unknown] * 5, [0, 0, 0, unknown, unknown], [0] * 5):
            answer = world.call_api(metadata, request, 9)
            assert [topic.error_code for topic in answer.topics] == codes

    def test_a_topic_that_is_named_often_is_described_once(self, world: World) -> None:
        world.create(new("a", 3))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="a")] * 3)
        (topic,) = world.call_api(metadata, request, 9).topics
        assert len(topic.partitions) == 3


class TestTwoAtOnce:
    """Requests that are planned before the first of them is stored."""

    @pytest.fixture
    def world(self, world: World) -> World:
        world.create(new("a", 2))
        world.helpers.is_held = True
        return world

    def test_creations_of_one_name(self, world: World) -> None:
        request = CreateTopicsRequest(topics=[new("b")])
        answers = [world.start(create_topics, request), world.start(create_topics, request)]
        assert answers == [[], []]
        world.helpers.release()
        codes = [answer[0].topics[0].error_code for answer in answers]
        assert codes == [0, ErrorCode.TOPIC_ALREADY_EXISTS]

    def test_additions_of_partitions(self, world: World) -> None:
        topic = CreatePartitionsTopic(name="a", count=3, assignments=None)
        request = CreatePartitionsRequest(topics=[topic])
        answers = [
            world.start(create_partitions, request),
            world.start(create_partitions, request),
        ]
        world.helpers.release()
        first, second = (answer[0].results[0] for answer in answers)
        assert first.error_code == 0
        assert second.error_code == ErrorCode.INVALID_PARTITIONS
        assert second.error_message == "topic a has 3 partitions by now, not 2"
        assert len(world.store.image.topics["a"].partitions) == 3

    def test_changes_of_settings(self, world: World) -> None:
        answers = [
            world.start(
                incremental_alter_configs,
                IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(
                            resource_type=TOPIC,
                            resource_name="a",
                            configs=[AlterableConfig(name=name, config_operation=SET, value=value)],
                        )
                    ]
                ),
            )
            for name, value in (
                ("retention.ms", "5"),
                ("min.compaction.lag.ms", "100"),
                ("max.compaction.lag.ms", "50"),
            )
        ]
        world.helpers.release()
        codes = [answer[0].responses[0].error_code for answer in answers]
        assert codes == [0, 0, ErrorCode.INVALID_CONFIG]
        assert world.store.image.topics["a"].configs == {
            "retention.ms": "5",
            "min.compaction.lag.ms": "100",
        }

    def test_a_change_that_comes_while_another_one_is_written(self, world: World) -> None:
        """The second change starts from the first one's result, and is written after it."""

        def alter(name: str, value: str) -> Any:
            config = AlterableConfig(name=name, config_operation=SET, value=value)
            resource = AlterConfigsResource(
                resource_type=TOPIC, resource_name="a", configs=[config]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            return world.start(incremental_alter_configs, request)

        answers = [alter("retention.ms", "5"), alter("retention.ms", "6"), alter("flush.ms", "7")]
        assert len(world.helpers.waiting) == 1
        assert world.store.image.topics["a"].configs == {}
        world.helpers.release()
        assert [answer[0].responses[0].error_code for answer in answers] == [0, 0, 0]
        assert world.store.image.topics["a"].configs == {"retention.ms": "6", "flush.ms": "7"}
        assert {log.config.retention_ms for log in world.logs.by_partition.values()} == {6}

    def test_deletions(self, world: World) -> None:
        request = DeleteTopicsRequest(topic_names=["a"])
        answers = [
            world.start(delete_topics, request, 5),
            world.start(delete_topics, request, 5),
        ]
        world.helpers.release()
        codes = [answer[0].responses[0].error_code for answer in answers]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_a_deletion_while_the_logs_are_being_made(self, world: World) -> None:
        world.helpers.release()
        world.loop.is_held = True
        creation = world.start(create_topics, CreateTopicsRequest(topics=[new("b", 5)]))
        world.loop.run(turns=2)
        made = [partition for partition in world.logs.by_partition if partition.topic == "b"]
        assert 0 < len(made) < 5
        deletion = world.start(delete_topics, DeleteTopicsRequest(topic_names=["b"]), 5)
        world.loop.run()
        assert creation[0].topics[0].error_code == 0
        assert deletion[0].responses[0].error_code == 0
        assert {partition.topic for partition in world.logs.by_partition} == {"a"}
        assert not world.store.image.deleting


@pytest.mark.parametrize(
    ("name", "partitions", "min_in_sync"),
    [("__consumer_offsets", 7, None), ("__transaction_state", 9, "1")],
)
def test_a_topic_of_the_brokers_own_state_is_made_as_the_broker_needs_it(
    tmp_path: Path, name: str, partitions: int, min_in_sync: str | None
) -> None:
    world = World(
        tmp_path,
        "offsets.topic.num.partitions=7",
        "transaction.state.log.num.partitions=9",
        "transaction.state.log.min.isr=1",
    )
    (told,) = world.create(new(name, 3, cleanup_policy="delete", retention_ms="1"))
    assert (told.error_code, told.num_partitions) == (0, partitions)
    assert "ignored the requested partitions" in told.error_message
    configs = world.store.image.topics[name].configs
    assert configs["cleanup.policy"] == "compact"
    assert configs.get("min.insync.replicas") == min_in_sync
    assert configs["retention.ms"] == "1"
    (other,) = world.create(new("of-a-client", 3))
    assert (other.num_partitions, other.error_message) == (3, None)
