"""Names, ids and the immutable snapshot."""

from uuid import UUID

import pytest

from klog_broker.config import Listener
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import (
    NO_BROKER,
    RESERVED_IDS,
    Broker,
    MetadataImage,
    PartitionState,
    Topic,
    check_no_collision,
    check_topic_name,
    new_id,
)
from klog_broker.runtime.chance import Chance
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

EMPTY = MetadataImage("cluster")
ONE = BrokerId(1)


def topic(name: str, number: int = 1, partitions: int = 1) -> Topic:
    state = PartitionState((ONE,), (ONE,), ONE)
    return Topic(name, TopicId(UUID(int=1000 + number)), (state,) * partitions)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_", "__consumer_offsets"])
def test_names_that_kafka_allows(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("", "the topic's name is empty"),
        (".", "a topic cannot be named '.'"),
        ("..", "a topic cannot be named '..'"),
        ("x" * 250, "has 250 characters; at most 249"),
        ("a b", "characters other than ASCII letters"),
        ("a/b", "characters other than ASCII letters"),
        ("é", "characters other than ASCII letters"),
        ("a\n", "characters other than ASCII letters"),
    ],
)
def test_names_that_kafka_refuses(name: str, expected: str) -> None:
    with pytest.raises(InvalidTopicName) as caught:
        check_topic_name(name)
    assert expected in str(caught.value)


def test_names_that_differ_only_in_dots_and_underscores_collide() -> None:
    image = EMPTY.with_topics([topic("a.b_c", 1), topic("plain", 2)])
    with pytest.raises(InvalidTopicName, match=r"from the existing topic a\.b_c only in"):
        check_no_collision("a_b.c", image)
    for name in ("a.b_c", "a.b.d", "plain"):
        check_no_collision(name, image)


def test_new_ids_are_not_kafkas_own_and_do_not_look_like_options() -> None:
    chance = Chance(1)
    ids = {new_id(chance) for _ in range(2000)}
    assert len(ids) == 2000
    assert not ids & RESERVED_IDS
    assert not any(encode_topic_id(each).startswith("-") for each in ids)


def test_topics_are_found_by_name_and_by_id() -> None:
    first, second = topic("a", 1, partitions=2), topic("b", 2)
    image = EMPTY.with_topics([first]).with_topics([second])
    assert image.topic("a") is first
    assert image.topic_by_id(second.topic_id) is second
    assert image.topic("c") is None
    assert image.topic_by_id(UUID(int=5)) is None
    assert image.partition("a", 1) == first.partitions[1]
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("c", 0) is None
    assert first.topic_partitions() == [TopicPartition("a", 0), TopicPartition("a", 1)]


def test_an_image_never_changes_and_its_version_rises() -> None:
    first = EMPTY.with_topics([topic("a", 1)])
    second = first.with_deletion_begun(topic("a", 1))
    third = second.with_deletion_finished(TopicId(UUID(int=1001)))
    assert [image.version for image in (EMPTY, first, second, third)] == [0, 1, 2, 3]
    assert first.topic("a") is not None
    assert second.topic("a") is None
    assert second.topic_by_id(UUID(int=1001)) is None
    assert list(second.deleting) == [UUID(int=1001)]
    assert not third.deleting
    with pytest.raises(TypeError):
        first.topics["b"] = topic("b")  # type: ignore[index]


def test_brokers_have_an_address_for_each_listener() -> None:
    endpoint = Listener("INSIDE", "PLAINTEXT", "h", 1)
    image = EMPTY.with_broker(Broker(ONE, (endpoint,), "rack"))
    assert image.brokers[ONE].endpoint("INSIDE") is endpoint
    assert image.brokers[ONE].endpoint("OUTSIDE") is None
    assert NO_BROKER not in image.brokers


def test_internal_topics() -> None:
    assert topic("__consumer_offsets").is_internal
    assert not topic("consumer_offsets").is_internal
