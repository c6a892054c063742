"""New partitions are spread over a cluster's brokers and racks; a broker alone has all of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.config import BrokerConfig
from klog_broker.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    Topic,
)
from klog_broker.runtime.system.chance import Chance
from klog_broker.topics.planning import plan_more_partitions, plan_new_topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId


def cluster(*racks: str | None) -> Any:
    """The services of a broker in a cluster with a broker for each rack, their ids from 1 on."""
    image = MetadataImage("c")
    for number, rack in enumerate(racks, 1):
        image = image.with_broker(BrokerRegistration(BrokerId(number), (), rack))
    return SimpleNamespace(
        config=BrokerConfig.load(None, {}, data=Path("unused")),
        metadata=SimpleNamespace(image=image, is_standalone=True),
        chance=Chance(3),
    )


def test_each_replica_is_on_another_broker_and_leaders_go_round() -> None:
    planned = plan_new_topic(
        cluster(None, None, None), "t", num_partitions=6, replication_factor=2
    ).assignment
    assert [len(set(row)) for row in planned] == [2] * 6
    leaders = [row[0] for row in planned]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert len(set(planned)) == 6


def test_topics_begin_with_different_brokers() -> None:
    services = cluster(None, None, None)
    first = {
        plan_new_topic(services, f"t{number}", num_partitions=1, replication_factor=1).assignment
        for number in range(20)
    }
    assert first == {((1,),), ((2,),), ((3,),)}


def test_replicas_are_in_different_racks() -> None:
    services = cluster("a", "a", "b", "b")
    planned = plan_new_topic(services, "t", num_partitions=12, replication_factor=2).assignment
    assert all({replica <= 2 for replica in row} == {True, False} for row in planned)


def test_more_partitions_go_on_where_the_topic_ends() -> None:
    services = cluster(None, None, None)
    states = tuple(
        PartitionRegistration(tuple(map(BrokerId, row)), (), BrokerId(-1))
        for row in ((2, 3), (3, 1))
    )
    more = plan_more_partitions(services, Topic("t", NO_TOPIC_ID, states), 5, None)
    assert more.first_partition == 2
    assert [row[0] for row in more.assignment] == [1, 2, 3]
    assert all(len(set(row)) == 2 for row in more.assignment)


def test_more_partitions_have_as_many_replicas_as_the_topic() -> None:
    services = cluster(None, None, None)
    states = (PartitionRegistration(tuple(map(BrokerId, (2, 3))), (), BrokerId(-1)),)
    topic = Topic("t", NO_TOPIC_ID, states)
    assert plan_more_partitions(services, topic, 3, [[1, 2], [3, 1]]).assignment == ((1, 2), (3, 1))
    for assignment in ([[1], [2]], [[1, 2, 3], [3, 2, 1]]):
        with pytest.raises(BrokerError, match="but partition 0 of topic t has 2") as refused:
            plan_more_partitions(services, topic, 3, assignment)
        assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_too_many_replicas_are_refused() -> None:
    with pytest.raises(BrokerError, match="expected 1 to 3, the number of live brokers") as refused:
        plan_new_topic(cluster(None, None, None), "t", num_partitions=1, replication_factor=4)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    states = (PartitionRegistration(tuple(map(BrokerId, (1, 2))), (), BrokerId(-1)),)
    with pytest.raises(BrokerError, match="2 replicas, expected 1 to 1"):
        plan_more_partitions(cluster(None), Topic("t", NO_TOPIC_ID, states), 2, None)


def test_a_standalone_broker_has_all_replicas_and_uses_no_randomness() -> None:
    services = cluster("rack")
    services.chance = None
    planned = plan_new_topic(services, "t", num_partitions=10_000, replication_factor=1)
    assert planned.assignment == ((BrokerId(1),),) * 10_000
