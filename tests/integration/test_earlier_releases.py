"""Today's broker on the data directories that klog's releases left: all of it is there."""

from pathlib import Path

import pytest

from pyspark_klog.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyspark_klog.records.record import Record
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.golden.earlier_releases import (
    CONFIGS,
    FOLDER,
    GROUP,
    HOW,
    MEMBER,
    PARTITIONS,
    TOPIC,
    EarlierDirectory,
    Expected,
    repeat_of,
)
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, produced, read_all, topic_id_of

FILES = sorted(FOLDER.glob("*.json"))
# The kept data are old by now: expire none of them.
SETTINGS = {"producer.id.expiration.ms": 2**31 - 1, "offsets.retention.minutes": 2**31 - 1}


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def plain(record: Record) -> list[object]:
    headers = [[name, text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp_ms, text(record.key), text(record.value), headers]


def check(client: RawClient, expected: Expected) -> None:
    """Topic, settings, records, committed offsets and the group."""
    assert str(topic_id_of(client, TOPIC)) == expected.topic_id
    for partition in range(PARTITIONS):
        found = [plain(record) for record in read_all(client, TOPIC, partition)]
        assert found[: len(expected.records[partition])] == expected.records[partition]
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=list(CONFIGS)
    )
    described = client.call(DescribeConfigsRequest(resources=[resource]), 4).results[0]
    assert {each.name: each.value for each in described.configs} == CONFIGS
    rows = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
    asked = OffsetFetchRequest(group_id=GROUP, topics=rows)
    eventually(lambda: client.call(asked, 5).error_code == 0, what="the group's shard is loaded")
    answer = client.call(asked, 5).topics[0].partitions
    committed = {each.partition_index: [each.committed_offset, each.metadata] for each in answer}
    assert committed == dict(enumerate(expected.committed))
    group = client.call(DescribeGroupsRequest(groups=[GROUP]), 4).groups[0]
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert [each.group_instance_id for each in group.members] == [MEMBER]
    assert group.members[0].member_assignment == b"all"


def test_there_is_a_directory_of_each_kind() -> None:
    assert {EarlierDirectory.load(file).how for file in FILES} == set(HOW)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_an_earlier_release_left_is_all_there(tmp_path: Path, file: Path) -> None:
    earlier = EarlierDirectory.load(file)
    expected, data = earlier.expected, tmp_path / "data"
    earlier.unpack(data)
    ends = [len(records) for records in expected.records]
    for later in range(2):
        with BrokerThread(data, SETTINGS) as thread, thread.client() as client:
            assert thread.broker.services.logs.is_clean_start == (earlier.how == "stopped" or later)
            check(client, expected)
            # The producer is known: its last batch is not appended twice.
            assert produced(client, TOPIC, repeat_of(expected.producer)) == expected.producer[3]
            for partition in range(PARTITIONS):
                offset = produced(client, TOPIC, batch(b"new"), partition=partition)
                assert offset == ends[partition] + later
