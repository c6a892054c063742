"""A broker applies a controller's requests: one at a time, and none of an old controller."""

from collections.abc import Callable

import pytest

from klog_broker.cluster.broker_requests import MAX_PARTITIONS, ROLE_CHANGES_PER_TURN
from klog_broker.controller.zookeeper.request_batch import FULL, LEADER_DURING_DELETE
from klog_broker.log.errors import OutOfDescriptors
from klog_broker.runtime.event_loop.slices import SLICE_ELEMENTS
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from pyspark_klog.protocol.apis.update_metadata import UpdateMetadataTopicState
from tests.support.cluster.controlled_broker import (
    OTHER_ID,
    TOPIC_ID,
    ControlledBroker,
    lead,
    stop,
    update_metadata_request,
)


def errors(answer: LeaderAndIsrResponse) -> list[ErrorCode]:
    assert answer.error_code == ErrorCode.NONE
    return [ErrorCode(each.error_code) for t in answer.topics for each in t.partition_errors]


@pytest.fixture
def world() -> ControlledBroker:
    return ControlledBroker()


# --- LeaderAndIsr -------------------------------------------------------------------------------
def test_replicas_get_logs_and_roles(world: ControlledBroker) -> None:
    assert errors(world.response_to(lead(0, 1))) == [ErrorCode.NONE] * 2
    assert errors(world.response_to(lead(2, leader=2))) == [ErrorCode.NONE]
    assert [world.role_of(each) for each in range(4)] == ["Leader", "Leader", "Follower", "none"]
    assert world.response_to(lead(0)).topics[0].topic_id == TOPIC_ID


def test_a_known_leader_epoch_changes_nothing(world: ControlledBroker) -> None:
    world.response_to(lead(leader_epoch=4))
    leader = world.replicas.led["orders", 0]
    for epoch in (4, 3):
        found = errors(world.response_to(lead(leader=2, leader_epoch=epoch)))
        assert found == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert world.replicas.led["orders", 0] is leader
    assert errors(world.response_to(lead(leader=2, leader_epoch=5))) == [ErrorCode.NONE]
    assert world.role_of() == "Follower"
    assert leader.ended is not None


def test_a_bug_in_one_update_does_not_hold_up_the_next(
    world: ControlledBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken, pytest.raises(ZeroDivisionError):
        broken.setattr(type(world.store.view), "update_topics", fail)
        world.receive(update_metadata_request(0))
    world.response_to(update_metadata_request(0))
    assert set(world.store.image.topics) == {"orders"}


def test_a_folder_of_another_topic_of_the_same_name_is_logged_once(
    world: ControlledBroker, caplog: pytest.LogCaptureFixture
) -> None:
    world.response_to(lead(0, 1))
    world.response_to(lead(0, 1, leader_epoch=1, topic_id=OTHER_ID))
    (line,) = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert "no replica for 2 partitions" in line


def test_each_partition_is_answered_for_itself(world: ControlledBroker) -> None:
    world.response_to(lead())
    order = lead(0, leader_epoch=1, topic_id=OTHER_ID)
    order.topic_states += [
        *lead(1, replicas=(2, 3)).topic_states,
        *lead(-1, MAX_PARTITIONS, topic="numbers").topic_states,
        *lead(0, leader_epoch=-1, topic="epochs").topic_states,
        *lead(0, topic="../escaped").topic_states,
        *lead(0, topic="old", topic_id=NO_TOPIC_ID).topic_states,
        *lead(5).topic_states,
    ]
    assert errors(world.response_to(order)) == [
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]
    assert world.role_of() == "Leader"
    assert sorted(each.partition for each in world.logs.by_partition) == [0, 5]


def test_a_disk_that_refuses_is_named(world: ControlledBroker) -> None:
    world.logs.is_full = True
    assert errors(world.response_to(lead())) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.role_of() == "Offline"


def test_without_descriptors_the_controller_asks_again(
    world: ControlledBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OutOfDescriptors("too many open files")
    with monkeypatch.context() as patch:
        patch.setattr(world.logs, "create_async", lambda *args: args[3](None, full))
        reply = world.receive(lead())
        world.turns()
    assert "no file descriptor" in reply.closed
    assert errors(world.response_to(lead())) == [ErrorCode.NONE]
    assert world.role_of() == "Leader"


def test_without_descriptors_the_controller_asks_again_to_stop(
    world: ControlledBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.response_to(lead())
    full = OutOfDescriptors("too many open files")
    with monkeypatch.context() as patch:
        patch.setattr(world.logs, "delete_async", lambda *args: args[2](full))
        reply = world.receive(stop(0))
        world.turns()
    assert "no file descriptor" in reply.closed


def test_many_role_changes_take_many_turns(world: ControlledBroker) -> None:
    world.response_to(lead(*range(3 * ROLE_CHANGES_PER_TURN), leader=2))
    reply = world.receive(lead(*range(3 * ROLE_CHANGES_PER_TURN), leader_epoch=1))
    led = []
    while reply.answer is None:
        led.append(len(world.replicas.led))
        world.turns(1)
    assert led == [ROLE_CHANGES_PER_TURN, 2 * ROLE_CHANGES_PER_TURN, 3 * ROLE_CHANGES_PER_TURN]


def test_the_settings_of_a_topic_are_read_before_its_log_is_created(
    world: ControlledBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = []
    monkeypatch.setattr(
        world.store.settings, "learn_topics", lambda names, done: waiting.append((names, done))
    )
    reply = world.receive(lead())
    world.turns()
    assert (reply.answer, world.has_log()) == (None, False)
    [(names, learned)] = waiting
    assert names == ["orders"]
    # Another controller is elected before the configurations are read.
    assert (
        world.response_to(update_metadata_request(0, controller_epoch=4)).error_code
        == ErrorCode.NONE
    )
    learned()
    world.turns()
    assert reply.answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert not world.has_log()


def test_roles_of_a_new_topic_wait_for_its_settings(
    world: ControlledBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that lags behind receives UpdateMetadata for topics before its roles."""
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(world.store.settings, "learn_topics", lambda _, done: waiting.append(done))
    world.response_to(update_metadata_request(0))
    reply = world.receive(lead())
    world.turns()
    assert (reply.answer, world.has_log(), len(waiting)) == (None, False, 2)
    for learned in waiting:
        learned()
    world.turns()
    assert (reply.answer.error_code, world.has_log()) == (ErrorCode.NONE, True)
    world.response_to(lead(leader_epoch=9))
    assert len(waiting) == 2


def test_no_settings_are_read_for_a_refused_request(
    world: ControlledBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there were no such check, any client of the listener could make this broker read and keep
    any names."""
    learned: list[str] = []

    def learn(topics: dict[str, TopicId], done: Callable[[], None]) -> None:
        learned.extend(topics)
        done()

    monkeypatch.setattr(world.store, "learn_topics", learn)
    world.response_to(lead())
    assert learned == ["orders"]
    stale = world.response_to(lead(topic="a", controller_epoch=2))
    assert stale.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    stale = world.response_to(lead(topic="b", broker_epoch=49))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert "does not know its own epoch" in world.receive(lead(topic="c", broker_epoch=51)).closed
    assert learned == ["orders"]


# --- StopReplica --------------------------------------------------------------------------------
def test_a_stopped_replica_keeps_its_log_and_a_deleted_one_does_not(
    world: ControlledBroker,
) -> None:
    world.response_to(lead(0, 1, leader_epoch=4))
    answer = world.response_to(stop(0, deletes=False, leader_epoch=4))
    assert [each.error_code for each in answer.partition_errors] == [ErrorCode.NONE]
    assert (world.role_of(0), world.has_log(0)) == ("Unassigned", True)
    answer = world.response_to(stop(0, 1))
    assert [each.error_code for each in answer.partition_errors] == [ErrorCode.NONE] * 2
    assert (world.role_of(0), world.role_of(1)) == ("none", "none")
    assert not world.logs.by_partition


def test_an_older_epoch_stops_nothing(world: ControlledBroker) -> None:
    world.response_to(lead(leader_epoch=4))
    answer = world.response_to(stop(leader_epoch=3))
    assert [each.error_code for each in answer.partition_errors] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert world.role_of() == "Leader"


def test_what_is_not_here_is_stopped_already(world: ControlledBroker) -> None:
    answer = world.response_to(stop(0, topic="absent"))
    [error] = answer.partition_errors
    assert (error.topic_name, error.partition_index, error.error_code) == ("absent", 0, 0)


def test_an_offline_replica_is_not_deleted(world: ControlledBroker) -> None:
    world.response_to(lead())
    hosted = world.replicas.partition("orders", 0)
    assert hosted is not None
    hosted.go_offline()
    [error] = world.response_to(stop()).partition_errors
    assert error.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_cannot_be_deleted_is_named(world: ControlledBroker) -> None:
    world.response_to(lead())
    world.logs.is_full = True
    [error] = world.response_to(stop()).partition_errors
    assert error.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# --- UpdateMetadata -----------------------------------------------------------------------------
def test_the_image_shows_update_metadata(world: ControlledBroker) -> None:
    assert world.response_to(update_metadata_request(1, leader=2)).error_code == ErrorCode.NONE
    image = world.store.image
    topic = image.topic("orders")
    assert topic is not None and image.topic_by_id(TOPIC_ID) is topic
    untold, told = topic.partitions
    assert (untold.leader, untold.replicas) == (-1, ())
    assert (told.leader, told.replicas, told.in_sync) == (2, (1, 2), (1,))
    world.response_to(update_metadata_request(0, leader=1))
    assert [each.leader for each in world.store.image.topics["orders"].partitions] == [1, 2]
    assert world.images == [("orders",), ()]


def test_a_large_topic_is_read_in_slices_and_shown_as_a_whole(world: ControlledBroker) -> None:
    def shown() -> int:
        topic = world.store.image.topic("orders")
        return 0 if topic is None else len(topic.partitions)

    for leader, before, after in ((1, 0, 10_000), (LEADER_DURING_DELETE, 10_000, 0)):
        reply = world.receive(update_metadata_request(*range(10_000), leader=leader))
        counts = []
        while reply.answer is None:
            counts.append(shown())
            world.turns(1)
        assert len(counts) >= 10_000 // SLICE_ELEMENTS - 1
        assert set(counts) == {before}
        assert shown() == after


def test_the_image_shows_which_replicas_are_offline(world: ControlledBroker) -> None:
    order = update_metadata_request(0, leader=1)
    order.topic_states[0].partition_states[0].offline_replicas = [2]
    world.response_to(order)
    assert world.store.image.topics["orders"].partitions[0].offline == (2,)
    world.response_to(update_metadata_request(0, leader=1))
    assert world.store.image.topics["orders"].partitions[0].offline == ()


def test_an_invalid_partition_number_changes_nothing(world: ControlledBroker) -> None:
    world.response_to(update_metadata_request(0, leader=1))
    world.response_to(update_metadata_request(-1, MAX_PARTITIONS, leader=2))
    assert [each.leader for each in world.store.image.topics["orders"].partitions] == [1]


@pytest.mark.parametrize("kind", [0, FULL])
@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a" * 250])
def test_an_invalid_topic_name_changes_nothing(
    world: ControlledBroker, name: str, kind: int
) -> None:
    assert (
        world.response_to(update_metadata_request(0, topic=name, kind=kind)).error_code
        == ErrorCode.NONE
    )
    assert world.store.image.topics == {}


def test_an_older_partition_epoch_changes_nothing(world: ControlledBroker) -> None:
    world.response_to(update_metadata_request(0, leader=2, zk_version=5))
    world.response_to(update_metadata_request(0, leader=1, zk_version=4))
    assert world.store.image.topics["orders"].partitions[0].leader == 2


def test_a_deleted_topic_is_not_shown_to_clients(world: ControlledBroker) -> None:
    world.response_to(update_metadata_request(0, 1))
    world.response_to(update_metadata_request(0, leader=LEADER_DURING_DELETE, topic_id=OTHER_ID))
    assert world.store.image.topic("orders") is not None
    world.response_to(update_metadata_request(0, leader=LEADER_DURING_DELETE))
    assert world.store.image.topic("orders") is None
    assert not world.store.image.topics_by_id
    assert not world.store.image.deleting


def test_a_topic_made_again_goes_before_it_comes(world: ControlledBroker) -> None:
    world.response_to(update_metadata_request(0, 1))
    seen = []
    world.store.view.on_image = lambda image, names: seen.append((tuple(image.topics), names))
    world.response_to(update_metadata_request(0, topic_id=OTHER_ID))
    assert seen == [((), ("orders",)), (("orders",), ("orders",))]
    assert set(world.store.image.topics_by_id) == {OTHER_ID}
    assert len(world.store.image.topics["orders"].partitions) == 1


def test_a_full_update_is_all_there_is(world: ControlledBroker) -> None:
    world.response_to(update_metadata_request(0, topic="other", topic_id=OTHER_ID))
    world.response_to(update_metadata_request(0, 1, zk_version=5))
    world.response_to(update_metadata_request(0, zk_version=4, kind=FULL))
    assert list(world.store.image.topics) == ["orders"]
    [state] = world.store.image.topics["orders"].partitions
    assert state.partition_epoch == 4


def test_what_the_controller_cannot_read_stays_as_it_was(world: ControlledBroker) -> None:
    world.response_to(update_metadata_request(0, topic="other", topic_id=OTHER_ID))
    world.response_to(update_metadata_request(0, 1, zk_version=5))
    before = world.store.image.topics["orders"].partitions
    order = update_metadata_request(0, 1, zk_version=-1, kind=FULL)
    order.topic_states.append(UpdateMetadataTopicState(topic_name="other"))
    world.response_to(order)
    assert list(world.store.image.topics) == ["other", "orders"]
    assert world.store.image.topics["orders"].partitions == before
    assert world.orders.has_full_metadata


def test_a_topic_that_the_controller_cannot_read_is_remembered_until_its_update(
    world: ControlledBroker,
) -> None:
    view, order = world.store.view, update_metadata_request(0, kind=FULL)
    for name in ("other", "third"):
        order.topic_states.append(UpdateMetadataTopicState(topic_name=name))
    world.response_to(order)
    assert view.unreadable == {"other", "third"}
    world.response_to(update_metadata_request(0, topic="other", topic_id=OTHER_ID))
    assert view.unreadable == {"third"}
    world.response_to(update_metadata_request(0, kind=FULL))
    assert not view.unreadable


def test_all_topics_are_known_after_the_newest_controllers_full_update(
    world: ControlledBroker,
) -> None:
    """Roles arrive before the full UpdateMetadata; until then no partition counts as deleted."""
    assert not world.orders.has_full_metadata
    world.response_to(lead())
    world.response_to(update_metadata_request(0))
    assert not world.orders.has_full_metadata
    world.response_to(update_metadata_request(0, kind=FULL))
    assert world.orders.has_full_metadata
    world.response_to(update_metadata_request(1))
    assert world.orders.has_full_metadata
    world.response_to(lead(1, controller_epoch=4))
    assert not world.orders.has_full_metadata
    world.response_to(update_metadata_request(0, kind=FULL, controller_epoch=4))
    assert world.orders.has_full_metadata
    world.epoch = 51
    assert not world.orders.has_full_metadata


def test_what_contradicts_itself_does_not_confuse_the_image(world: ControlledBroker) -> None:
    order = update_metadata_request(0, topic="a")
    order.topic_states += [
        *update_metadata_request(0, topic="b").topic_states,
        *update_metadata_request(0, topic="b", topic_id=OTHER_ID).topic_states,
        *update_metadata_request(0, -1, MAX_PARTITIONS, topic="c", topic_id=TOPIC_ID).topic_states,
        *update_metadata_request(0, topic="old", topic_id=NO_TOPIC_ID).topic_states,
    ]
    world.response_to(order)
    world.response_to(update_metadata_request(0, topic="d"))
    image = world.store.image
    assert set(image.topics) == {"b", "d"}
    assert {each.name for each in image.topics_by_id.values()} == {"b", "d"}
    assert all(len(each.partitions) == 1 for each in image.topics.values())


# --- whose orders -------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [lead, stop, update_metadata_request])
def test_a_broker_without_a_broker_epoch_refuses_requests(
    world: ControlledBroker, order: object
) -> None:
    for epoch in (-1, 49):
        world.epoch = epoch
        reply = world.receive(order(0))  # type: ignore[operator]
        assert "does not know its own epoch" in reply.closed


@pytest.mark.parametrize("order", [lead, stop, update_metadata_request])
def test_stale_epochs_are_refused(world: ControlledBroker, order: object) -> None:
    world.response_to(update_metadata_request(0))
    stale = world.response_to(order(0, controller_epoch=2))  # type: ignore[operator]
    assert stale.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    world.epoch = 51
    assert world.response_to(order(0)).error_code == ErrorCode.STALE_BROKER_EPOCH  # type: ignore[operator]


def test_epochs_are_compared_when_the_request_begins(world: ControlledBroker) -> None:
    first = world.receive(lead(0))
    stale = world.receive(lead(1))
    newer = world.receive(lead(2, controller_epoch=4))
    again = world.receive(lead(3))
    assert not any(each.answer for each in (first, stale, newer, again))
    world.turns(30)
    codes = [each.answer.error_code for each in (first, stale, newer, again)]
    assert codes == [0, 0, 0, ErrorCode.STALE_CONTROLLER_EPOCH]
    world.receive(lead(4, controller_epoch=4))
    bounced = world.receive(lead(5, controller_epoch=4))
    world.epoch = 51
    world.turns(30)
    assert bounced.answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [world.has_log(each) for each in range(6)] == [True, True, True, False, True, False]


def test_a_request_by_a_connection_that_was_given_up_is_stale(world: ControlledBroker) -> None:
    world.response_to(lead())
    world.connection = 8
    world.response_to(lead(leader_epoch=1))
    world.connection = 7
    assert "over a newer connection" in world.receive(stop()).closed
    assert world.has_log()
    assert world.response_to(stop(controller_epoch=4)).error_code == ErrorCode.NONE


def test_requests_of_clients_and_of_krafts_controller_are_refused(world: ControlledBroker) -> None:
    with pytest.raises(BrokerError) as refused:
        world.receive(lead(), listener="OUTSIDE")
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    order = lead()
    order.is_kraft_controller = True
    assert "KRaft" in world.receive(order).closed
    assert TopicPartition("orders", 0) not in world.logs.by_partition
