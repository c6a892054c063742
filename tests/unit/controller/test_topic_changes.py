"""Changes of topics at the controller: answered once the image shows them, or at the time-out."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from klog_broker.controller.zookeeper.topic_changes import ControllerTopicChanges
from klog_broker.metadata.errors import (
    InvalidTopicName,
    NoResponse,
    PartitionsChanged,
    TopicExists,
    UnknownTopic,
)
from klog_broker.metadata.image import NO_BROKER, MetadataImage, PartitionRegistration, Topic
from klog_broker.metadata.interface import NewTopic
from klog_broker.metadata.zookeeper.image_updater import UNKNOWN_STATE
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicId, TopicPartition
from tests.support.cluster.zookeeper import ClusterWorld

ONE, TWO = BrokerId(1), BrokerId(2)
TOPIC_ID = TopicId(UUID(int=9))
TIMEOUT_MS = 5_000


def led_by(leader: BrokerId) -> PartitionRegistration:
    return PartitionRegistration((ONE, TWO), (ONE, TWO), leader)


class Changing:
    """Records the requests to the controller, and responds when the test says so."""

    def __init__(self) -> None:
        self.cluster = ClusterWorld()
        self.image = MetadataImage("c")
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[Callable[[Any], None]] = []
        self.outcomes: list[Any] = []
        self.changes = ControllerTopicChanges(
            self.cluster.loop, self, lambda: self.image, lambda: TopicId(UUID(int=77))
        )

    def create_topic(self, topic: Any, done: Any) -> None:
        self.asked.append(("create", topic.name, topic.replicas, dict(topic.configs)))
        self.answers.append(done)

    def add_partitions(self, name: str, replicas: Any, done: Any) -> None:
        self.asked.append(("add", name, replicas))
        self.answers.append(done)

    def delete_topic(self, name: str, topic_id: TopicId, done: Any) -> None:
        self.asked.append(("delete", name, topic_id))
        self.answers.append(done)

    def elect_leaders(self, partitions: Any, done: Any, *, unclean: bool) -> None:
        self.asked.append(("elect", partitions, unclean))
        self.answers.append(done)

    def shows(self, *leaders: BrokerId, name: str = "orders") -> Topic:
        topic = Topic(name, TOPIC_ID, tuple(map(led_by, leaders)))
        self.image = self.image.with_topics([topic])
        self.changes.image_changed()
        self.cluster.advance(1)
        return topic

    def answer(self, outcome: Any = ErrorCode.NONE) -> None:
        self.answers.pop(0)(outcome)
        self.cluster.advance(1)

    def create(self, *names: str, timeout_ms: int = TIMEOUT_MS) -> None:
        topics = [NewTopic(name, ((ONE, TWO),) * 2, {"a": "b"}, TOPIC_ID) for name in names]
        self.changes.create_topics(topics, self.outcomes.append, timeout_ms=timeout_ms)


@pytest.fixture
def broker() -> Changing:
    return Changing()


def test_a_topic_is_made_once_all_its_leaders_are_seen(broker: Changing) -> None:
    broker.create("orders")
    assert broker.asked == [("create", "orders", ((ONE, TWO),) * 2, {"a": "b"})]
    broker.answer()
    broker.shows(ONE)
    broker.shows(ONE, NO_BROKER)
    assert broker.outcomes == []
    topic = broker.shows(ONE, TWO)
    assert broker.outcomes == [[topic]]
    broker.cluster.advance(2 * TIMEOUT_MS)
    assert len(broker.outcomes) == 1


def test_the_image_may_be_faster_than_the_answer(broker: Changing) -> None:
    broker.create("orders")
    topic = broker.shows(ONE, TWO)
    assert broker.outcomes == []
    broker.answer()
    assert broker.outcomes == [[topic]]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_request_that_waits_too_long_times_out(broker: Changing, is_answered: bool) -> None:
    broker.create("orders")
    if is_answered:
        broker.answer()
        broker.shows(ONE, NO_BROKER)
    broker.cluster.advance(TIMEOUT_MS + 100)
    [[error]] = broker.outcomes
    assert isinstance(error, NoResponse)
    broker.shows(ONE, TWO)
    assert len(broker.outcomes) == 1


def test_no_time_at_all_makes_the_topic_and_says_nothing_of_it(broker: Changing) -> None:
    broker.create("orders", timeout_ms=-1)
    broker.cluster.advance(1)
    assert isinstance(broker.outcomes[0][0], NoResponse)
    assert broker.asked


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, TopicExists),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopic),
        (ErrorCode.INVALID_PARTITIONS, PartitionsChanged),
        (ErrorCode.INVALID_REQUEST, BrokerError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerError),
    ],
)
def test_refusals_are_the_stores_errors(
    broker: Changing, code: ErrorCode, error: type[Exception]
) -> None:
    broker.create("orders")
    broker.answers.pop(0)(code)
    assert broker.outcomes == [], "later, never out of the call itself"
    broker.cluster.advance(1)
    assert type(broker.outcomes[0][0]) is error


def test_another_is_the_controller(broker: Changing) -> None:
    broker.create("orders")
    broker.answer(ErrorCode.NOT_CONTROLLER)
    [[error]] = broker.outcomes
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.NOT_CONTROLLER


def test_names_that_are_equal_in_metrics_are_refused_before_the_image_shows_one(
    broker: Changing,
) -> None:
    broker.create("my.topic")
    broker.create("my_topic")
    broker.cluster.advance(1)
    [[error]] = broker.outcomes
    assert isinstance(error, InvalidTopicName)
    assert len(broker.asked) == 1
    broker.create("my.topic")
    broker.cluster.advance(1)
    assert isinstance(broker.outcomes[1][0], TopicExists)
    broker.cluster.advance(TIMEOUT_MS + 100)
    broker.create("my_topic")
    assert len(broker.asked) == 2, "nobody waits for the other one any more"


def test_topics_of_one_request_fail_by_themselves(broker: Changing) -> None:
    broker.create("orders", "bills")
    broker.answer(ErrorCode.TOPIC_ALREADY_EXISTS)
    broker.answer()
    topic = broker.shows(ONE, TWO)
    [[first, second]] = broker.outcomes
    assert isinstance(first, TopicExists)
    assert second == topic


def test_partitions_are_added_once_they_are_led(broker: Changing) -> None:
    broker.shows(ONE)
    done: list[Any] = []
    broker.changes.create_partitions("orders", 1, [[TWO]], done.append, timeout_ms=TIMEOUT_MS)
    assert broker.asked == [("add", "orders", {1: (TWO,)})]
    broker.answer()
    broker.shows(ONE, NO_BROKER)
    assert done == []
    topic = broker.shows(ONE, TWO)
    assert done == [topic]


def test_a_topic_is_deleted_once_it_is_not_seen(broker: Changing) -> None:
    topic = broker.shows(ONE)
    done: list[Any] = []
    broker.changes.delete_topic(TOPIC_ID, done.append, timeout_ms=TIMEOUT_MS)
    assert broker.asked == [("delete", "orders", TOPIC_ID)]
    broker.answer()
    assert done == []
    broker.image = MetadataImage("c")
    broker.changes.image_changed()
    assert done == [topic]
    broker.changes.delete_topic(TOPIC_ID, done.append, timeout_ms=TIMEOUT_MS)
    broker.cluster.advance(1)
    assert isinstance(done[1], UnknownTopic)


def test_elections_are_over_once_the_leaders_are_seen(broker: Changing) -> None:
    broker.shows(TWO, TWO, ONE)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    done: list[Any] = []
    elect = partial(broker.changes.elect_leaders, partitions, unclean=False, timeout_ms=TIMEOUT_MS)
    elect(done.append)
    codes = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
    broker.answer(dict(zip(partitions, codes, strict=True)))
    broker.shows(ONE, TWO, ONE)
    assert done == []
    broker.shows(ONE, ONE, ONE)
    assert done == [dict(zip(partitions, codes, strict=True))]
    elect(done.append)
    broker.answer(dict.fromkeys(partitions, ErrorCode.NONE))
    assert len(done) == 2, "all of them are seen already"
    broker.shows(ONE, TWO, ONE)
    elect(done.append)
    broker.answer(dict.fromkeys(partitions, ErrorCode.NONE))
    broker.cluster.advance(TIMEOUT_MS + 100)
    assert done[2] == {
        partitions[0]: ErrorCode.NONE,
        partitions[1]: ErrorCode.REQUEST_TIMED_OUT,
        partitions[2]: ErrorCode.NONE,
    }


def test_an_image_is_not_searched_again_for_all_elected_partitions(
    broker: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, looks = 100, []
    partition = MetadataImage.partition

    def look(image: MetadataImage, topic: str, number: int) -> PartitionRegistration | None:
        looks.append(number)
        return partition(image, topic, number)

    monkeypatch.setattr(MetadataImage, "partition", look)
    partitions = [TopicPartition("orders", number) for number in range(count)]
    done: list[Any] = []
    broker.shows(*[TWO] * count)
    broker.changes.elect_leaders(partitions, done.append, unclean=False, timeout_ms=TIMEOUT_MS)
    broker.answer(dict.fromkeys(partitions, ErrorCode.NONE))
    for shown in range(1, count + 1):
        assert done == []
        broker.shows(*[ONE] * shown, *[TWO] * (count - shown))
    assert done == [dict.fromkeys(partitions, ErrorCode.NONE)]
    assert len(looks) <= 3 * count


def test_an_election_waits_for_the_first_update_metadata_of_its_partition(broker: Changing) -> None:
    topic = broker.shows(ONE, ONE)
    untold = replace(topic, partitions=(UNKNOWN_STATE, topic.partitions[1]))
    broker.image = broker.image.with_topics([untold])
    done: list[Any] = []
    partition = TopicPartition("orders", 0)
    broker.changes.elect_leaders([partition], done.append, unclean=False, timeout_ms=TIMEOUT_MS)
    broker.answer({partition: ErrorCode.NONE})
    assert done == []
    broker.shows(ONE, ONE)
    assert done == [{partition: ErrorCode.NONE}]


def test_an_election_by_another_controller_or_by_none(broker: Changing) -> None:
    done: list[Any] = []
    for _ in range(2):
        broker.changes.elect_leaders(None, done.append, unclean=True, timeout_ms=TIMEOUT_MS)
    broker.answer(ErrorCode.NOT_CONTROLLER)
    assert done == [ErrorCode.NOT_CONTROLLER]
    broker.cluster.advance(TIMEOUT_MS + 100)
    assert done[1] is ErrorCode.REQUEST_TIMED_OUT
