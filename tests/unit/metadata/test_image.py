"""Names, ids and the immutable snapshot."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.config import Listener
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import (
    NO_BROKER,
    RESERVED_IDS,
    BrokerRegistration,
    ImageDraft,
    MetadataImage,
    PartitionRegistration,
    Topic,
    check_no_collision,
    check_topic_name,
    new_id,
    plain_name,
)
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

EMPTY = MetadataImage("cluster")
ONE = BrokerId(1)


def topic(name: str, number: int = 1, partitions: int = 1) -> Topic:
    state = PartitionRegistration((ONE,), (ONE,), ONE)
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
    draft = ImageDraft(first)
    draft.begin_deletion(topic("a", 1))
    second = draft.image()
    draft = ImageDraft(second)
    draft.finish_deletion(TopicId(UUID(int=1001)))
    third = draft.image()
    assert [image.version for image in (EMPTY, first, second, third)] == [0, 1, 2, 3]
    assert first.topic("a") is not None
    assert second.topic("a") is None
    assert second.topic_by_id(UUID(int=1001)) is None
    assert list(second.deleting) == [UUID(int=1001)]
    assert not third.deleting
    with pytest.raises(TypeError):
        first.topics["b"] = topic("b")  # type: ignore[index]


NAMES = ["a.b", "a_c", "d", "e.f"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "grow", "set", "begin", "finish"]), st.integers(0, 3)),
        max_size=12,
    )
)
def test_many_changes_of_one_draft_are_the_same_as_a_draft_for_each(
    steps: list[tuple[str, int]],
) -> None:
    base = EMPTY.with_topics([topic("d", 90)])
    before = (dict(base.topics), dict(base.topics_by_id), dict(base.deleting))
    image, draft = base, ImageDraft(base)
    for number, (step, which) in enumerate(steps):
        name = NAMES[which]
        there = draft.topics.get(name)
        going = next((t for t in draft.deleting.values() if t.name == name), None)
        assert draft.is_being_deleted(name) == (going is not None)
        single = ImageDraft(image)
        for each in (draft, single):
            if step == "put" and there is None:
                each.put(topic(name, number))
            elif step == "set" and there is not None:
                each.put(replace(there, configs={"n": str(number)}))
            elif step == "grow" and there is not None:
                state = replace(there.partitions[0], partition_epoch=number)
                each.put_partitions({TopicPartition(name, 0): state})
            elif step == "begin" and there is not None:
                each.begin_deletion(there)
            elif step == "finish" and going is not None:
                each.finish_deletion(going.topic_id)
        image = single.image()
        dotted = {plain_name(each): each for each in draft.topics if each != "d"}
        assert draft.names_by_plain_name() == dotted
    whole = draft.image()
    assert whole.topics == image.topics
    assert whole.topics_by_id == image.topics_by_id
    assert whole.deleting == image.deleting
    assert whole.names_by_plain_name() == image.names_by_plain_name()
    assert (dict(base.topics), dict(base.topics_by_id), dict(base.deleting)) == before


def test_a_draft_names_the_topics_that_came_went_or_have_other_settings() -> None:
    draft = ImageDraft(EMPTY.with_topics([topic("a", 1), topic("b", 2), topic("c", 3)]))
    assert not draft.is_changed
    draft.put_partitions({TopicPartition("a", 0): PartitionRegistration((ONE,), (), ONE)})
    assert draft.is_changed
    draft.put(topic("d", 4))
    draft.put(replace(topic("b", 2), configs={"retention.ms": "5"}))
    draft.begin_deletion(topic("c", 3))
    assert draft.changed_names == ("d", "b", "c")


def test_what_does_not_change_is_shared() -> None:
    base = EMPTY.with_topics([topic("a", 1)])
    draft = ImageDraft(base)
    draft.put(topic("b", 2))
    image = draft.image()
    assert image.deleting is base.deleting
    assert image.topics["a"] is base.topics["a"]


def test_partitions_take_other_states_in_one_image() -> None:
    base = EMPTY.with_topics([topic("a", 1, 3), topic("b", 2)])
    state = PartitionRegistration((ONE,), (), NO_BROKER, LeaderEpoch(4), 5)
    draft = ImageDraft(base)
    draft.put_partitions({TopicPartition("a", 1): state, TopicPartition("b", 0): state})
    changed = draft.image()
    assert [each == state for each in changed.topics["a"].partitions] == [False, True, False]
    assert changed.partition("b", 0) == state
    assert changed.topic_by_id(base.topics["a"].topic_id) == changed.topics["a"]
    assert changed.version == base.version + 1


def test_brokers_have_an_address_for_each_listener() -> None:
    endpoint = Listener("INSIDE", "PLAINTEXT", "h", 1)
    image = EMPTY.with_broker(BrokerRegistration(ONE, (endpoint,), "rack"))
    assert image.brokers[ONE].endpoint("INSIDE") is endpoint
    assert image.brokers[ONE].endpoint("OUTSIDE") is None
    assert NO_BROKER not in image.brokers


def test_internal_topics() -> None:
    assert topic("__consumer_offsets").is_internal
    assert not topic("consumer_offsets").is_internal
