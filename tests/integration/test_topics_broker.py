"""Topics and their settings on a real broker: over the wire, over restarts, over kill -9.

A broker runs in a process of its own only where the test kills it or reads its exit code.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.local_file import FILE_NAME
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
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
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.storage.text_files import encode_topic_id
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.cluster.local_store import BlockingStore
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient

NO_ID = UUID(int=0)


def create(client: RawClient, name: str, partitions: int = 1, **configs: str) -> Any:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    (result,) = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
    return result


def delete(client: RawClient, *asked: DeleteTopicState) -> list[ErrorCode]:
    response = client.call(DeleteTopicsRequest(topics=list(asked)), 6)
    return [ErrorCode(row.error_code) for row in response.responses]


def described(client: RawClient, name: str, allow_creation: bool = False) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allow_creation
    )
    (topic,) = client.call(request, 12).topics
    return topic


def settings(client: RawClient, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    (result,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs}


def produce(client: RawClient, topic: str, size: int) -> ErrorCode:
    builder = BatchBuilder()
    builder.append(None, b"x" * size, 1)
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=0, records=builder.build())],
            )
        ],
    )
    (topic_reply,) = client.call(request, 9).responses
    return ErrorCode(topic_reply.partition_responses[0].error_code)


def directories(data: Path, topic: str) -> list[str]:
    return sorted(
        each.name for each in data.iterdir() if each.is_dir() and each.name.startswith(f"{topic}-")
    )


def test_one_id_everywhere_and_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as broker, RawClient(broker.address) as client:
        made = create(client, "a", 2)
        assert made.error_code == 0
        assert described(client, "a").topic_id == made.topic_id != NO_ID
        assert len(described(client, "a").partitions) == 2
    text = (data / "a-0" / "partition.metadata").read_text()
    assert encode_topic_id(made.topic_id) in text
    with BrokerThread(data) as broker, RawClient(broker.address) as client:
        assert described(client, "a").topic_id == made.topic_id


def test_a_recreated_topic_is_another_topic(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as broker, RawClient(broker.address) as client:
        old = create(client, "a")
        assert produce(client, "a", 10) is ErrorCode.NONE
        assert delete(client, DeleteTopicState(name="a")) == [ErrorCode.NONE]
        assert described(client, "a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        new = create(client, "a")
        assert new.topic_id not in (old.topic_id, NO_ID)
        assert delete(client, DeleteTopicState(topic_id=old.topic_id)) == [
            ErrorCode.UNKNOWN_TOPIC_ID
        ]
        assert described(client, "a").topic_id == new.topic_id
        names = directories(data, "a")
        assert "a-0" in names
        assert any(name.endswith("-delete") for name in names)


def test_a_topic_is_created_when_a_client_asks_for_it(tmp_path: Path) -> None:
    overrides = {"num.partitions": 3}
    with BrokerThread(tmp_path / "data", overrides) as broker, RawClient(broker.address) as client:
        assert described(client, "a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert described(client, "a b", True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        first = described(client, "a", True).error_code
        assert first == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "as in Kafka, clients ask again"
        made = described(client, "a")
        assert (made.error_code, len(made.partitions)) == (0, 3)
        assert made.topic_id != NO_ID


def test_a_deleted_topic_is_unknown_to_the_client_that_creates_it_again(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.address) as client:
        create(client, "a", 1)
        old = described(client, "a").topic_id
        assert delete(client, DeleteTopicState(name="a")) == [ErrorCode.NONE]
        code = described(client, "a", True).error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert described(client, "a", True).topic_id not in (old, NO_ID)


def test_where_topics_are_not_created_by_asking(tmp_path: Path) -> None:
    overrides = {"auto.create.topics.enable": "false"}
    with BrokerThread(tmp_path / "data", overrides) as broker, RawClient(broker.address) as client:
        code = described(client, "a", True).error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Killed(NamedTuple):
    """A broker that was killed twice; `kept` are the topics that it has acknowledged."""

    broker: BrokerProcess
    data: Path
    kept: dict[str, UUID]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Changes of topics and settings, a kill -9 after each part of them, and another start."""
    data = tmp_path_factory.mktemp("killed") / "data"
    ids: dict[str, UUID] = {}
    broker = BrokerProcess(data)
    with RawClient(broker.address) as client:
        ids["limited"] = create(client, "limited", 1, max_message_bytes="2000").topic_id
        assert produce(client, "limited", 5000) is ErrorCode.MESSAGE_TOO_LARGE
        change = AlterableConfig(name="max.message.bytes", config_operation=0, value="10000")
        resource = AlterConfigsResource(resource_type=2, resource_name="limited", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = client.call(request, 1).responses
        assert result.error_code == 0
        assert produce(client, "limited", 5000) is ErrorCode.NONE
        ids["grown"] = create(client, "grown", 1).topic_id
        topic = CreatePartitionsTopic(name="grown", count=3, assignments=None)
        (result,) = client.call(CreatePartitionsRequest(topics=[topic]), 3).results
        assert result.error_code == 0
        for number in range(3):
            ids[f"t0-{number}"] = create(client, f"t0-{number}").topic_id
    broker.kill()
    broker = BrokerProcess(data)
    with RawClient(broker.address) as client:
        for name, topic_id in ids.items():
            assert described(client, name).topic_id == topic_id
        gone, _ = ids.popitem()
        assert delete(client, DeleteTopicState(name=gone)) == [ErrorCode.NONE]
        assert described(client, gone).error_code != 0
        for number in range(3):
            ids[f"t1-{number}"] = create(client, f"t1-{number}").topic_id
    broker.kill()
    with BrokerProcess(data) as broker:
        yield Killed(broker, data, ids)


def test_settings_count_at_once_and_after_kill_9(restarted: Killed) -> None:
    with RawClient(restarted.broker.address) as client:
        assert settings(client, "limited")["max.message.bytes"] == "10000"
        assert produce(client, "limited", 5000) is ErrorCode.NONE
        assert produce(client, "limited", 20000) is ErrorCode.MESSAGE_TOO_LARGE


def test_partitions_are_added_and_there_after_kill_9(restarted: Killed) -> None:
    with RawClient(restarted.broker.address) as client:
        assert len(described(client, "grown").partitions) == 3
    assert directories(restarted.data, "grown") == ["grown-0", "grown-1", "grown-2"]


def test_what_was_acknowledged_is_there_after_kill_9(restarted: Killed) -> None:
    with RawClient(restarted.broker.address) as client:
        everything = client.call(MetadataRequest(topics=None), 12).topics
        assert {topic.name: topic.topic_id for topic in everything} == restarted.kept


def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerThread(data) as thread, thread.client() as client:
        create(client, "a", 2)
        create(client, "b")
    store = BlockingStore(RealFiles(), data, 0)
    store.begin_topic_deletion(store.image.topics["a"].topic_id)
    with BrokerThread(data) as thread, thread.client() as client:
        assert described(client, "a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert described(client, "b").error_code == 0
        assert all(name.endswith("-delete") for name in directories(data, "a"))
        assert create(client, "a").error_code == 0
    assert not LocalStore.open(RealFiles(), data, BrokerId(0)).image.deleting


def test_a_creation_that_a_crash_cut_short_is_finished_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    BrokerThread(data).stop()
    store = BlockingStore(RealFiles(), data, 0)
    store.create_topic("a", ((BrokerId(0),),) * 2, {"max.message.bytes": "2000"})
    with BrokerThread(data) as thread, thread.client() as client:
        assert directories(data, "a") == ["a-0", "a-1"]
        assert produce(client, "a", 10) is ErrorCode.NONE
        assert produce(client, "a", 5000) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_crash_at_the_very_first_start_leaves_a_directory_that_can_be_used(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    BrokerProcess(data).kill()
    (data / FILE_NAME).unlink()
    with BrokerThread(data) as thread, thread.client() as client:
        assert create(client, "a").error_code == 0


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    BrokerThread(data).stop()
    (data / FILE_NAME).write_bytes(b"nonsense")
    finished = subprocess.run(
        [sys.executable, "-m", "klog_broker", "--port", "0", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stdout) == (3, "")
    (line,) = (line for line in finished.stderr.splitlines() if line.startswith("klog: "))
    assert "klog-metadata is damaged: its first line is not the header" in line


def klog(broker: BrokerThread, *arguments: str) -> Result:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    return CliRunner().invoke(command, ["topics", *arguments, *servers], prog_name="klog")


def test_the_topics_command(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker:
        made = klog(broker, "create", "a", "--partitions", "3", "--config", "retention.ms=5")
        assert (made.exit_code, made.stdout) == (0, "created a: 3 partitions\n")
        again = klog(broker, "create", "a")
        assert (again.exit_code, again.stdout) == (1, "")
        assert "topic a already exists" in again.stderr
        assert klog(broker, "list").stdout == (
            "TOPIC  PARTITIONS  REPLICAS\na               3         1\n"
        )
        (found,) = json.loads(klog(broker, "describe", "a", "--json").stdout)
        assert found["configs"] == {"retention.ms": "5"}
        assert [row["leader"] for row in found["partitions"]] == [0, 0, 0]
        assert klog(broker, "delete", "a").stdout == "deleted a\n"
        assert json.loads(klog(broker, "list", "--json").stdout) == []
        missing = klog(broker, "describe", "a")
        assert (missing.exit_code, missing.stderr) == (1, "klog: topic a does not exist\n")


def test_a_fetch_that_waits_is_answered_when_its_topic_goes(tmp_path: Path) -> None:
    """See tests of Fetch for the wait itself; here it must end long before its deadline."""
    from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic

    with (
        BrokerThread(tmp_path / "data") as broker,
        RawClient(broker.address) as client,
        RawClient(broker.address) as reader,
    ):
        create(client, "a")
        request = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            max_bytes=1000,
            topics=[
                FetchTopic(
                    topic="a",
                    partitions=[
                        FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                    ],
                )
            ],
        )
        reader.send(request, 11)
        assert delete(client, DeleteTopicState(name="a")) == [ErrorCode.NONE]
        eventually(lambda: reader.has_answer(1), deadline_s=30)
        (topic,) = reader.receive(FetchRequest, 11).responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
