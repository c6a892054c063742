"""One controller in its own epoch; its writes are applied only while it is the controller."""

from typing import Any

import pytest

from klog_broker.controller.zookeeper.controller_election import Election, ElectionState
from klog_broker.controller.zookeeper.errors import ControllerMoved
from klog_broker.controller.zookeeper.fenced_writes import ControllerEpoch, FencedWrites
from klog_broker.metadata.image import NO_BROKER
from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    Create,
    Created,
    MultiFailed,
    NoNode,
    SessionExpired,
    Set,
    Stat,
)
from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.cluster import (
    ControllerRegistration,
    decode_controller,
    encode_controller,
)
from pyspark_klog.znodes.paths import CONTROLLER, CONTROLLER_EPOCH
from tests.support.cluster.zookeeper import ClusterWorld


class Candidate:
    """A broker's candidacy, and the notifications that the broker got."""

    def __init__(self, cluster: ClusterWorld, number: int) -> None:
        self.told: list[Any] = []
        self.seen: list[int] = []
        self.reigns: list[FencedWrites] = []
        self.election = Election(cluster.loop, BrokerId(number), cluster.world.clock.now_ms)
        self.election.on_elected.append(lambda writes: self.told.append(writes.epoch.number))
        self.election.on_elected.append(self.reigns.append)
        self.election.on_resigned.append(lambda: self.told.append("resigned"))
        self.election.on_controller.append(self.seen.append)
        self.sessions, self.client = cluster.sessions(self.election)
        self._cluster = cluster

    @property
    def is_controller(self) -> bool:
        return self.election.state is ElectionState.CONTROLLER

    @property
    def session_id(self) -> int:
        return self.sessions._session.session_id

    def write(self, writes: FencedWrites, *operations: Any) -> Any:
        answers: list[Any] = []
        writes.write(operations, answers.append)
        self._cluster.until(lambda: answers)
        return answers[0]


@pytest.fixture
def cluster() -> ClusterWorld:
    return ClusterWorld()


def elected(cluster: ClusterWorld, number: int) -> Candidate:
    candidate = Candidate(cluster, number)
    cluster.until(lambda: candidate.is_controller)
    return candidate


def follower(cluster: ClusterWorld, number: int) -> Candidate:
    candidate = Candidate(cluster, number)
    cluster.until(lambda: candidate.election.state is ElectionState.OTHER)
    return candidate


def test_the_first_epoch_is_one_and_each_controller_has_the_next(cluster: ClusterWorld) -> None:
    first = elected(cluster, 1)
    second = follower(cluster, 2)
    assert (first.told, first.seen, second.told, second.seen) == ([1], [1], [], [1])
    assert cluster.data(CONTROLLER_EPOCH) == b"1"
    assert decode_controller(cluster.data(CONTROLLER)).broker_id == 1
    assert first.reigns[0].epoch == ControllerEpoch(1, cluster.stat(CONTROLLER_EPOCH).version)
    first.sessions.close(lambda: None)
    cluster.until(lambda: second.is_controller)
    assert (second.told, second.seen) == ([2], [1, NO_BROKER, 2])
    assert cluster.data(CONTROLLER_EPOCH) == b"2"


def test_epochs_of_kafkas_controllers_count(cluster: ClusterWorld) -> None:
    cluster.call_zookeeper("create", CONTROLLER_EPOCH, b"41")
    assert elected(cluster, 1).told == [42]


def test_a_controller_without_a_session_resigns_before_it_is_a_candidate_again(
    cluster: ClusterWorld,
) -> None:
    first, second = elected(cluster, 1), None
    second = follower(cluster, 2)
    reign = first.reigns[0]
    cluster.zookeeper.expire(first.session_id)
    cluster.until(lambda: second.is_controller)
    cluster.until(lambda: first.election.state is ElectionState.OTHER)
    assert first.told == [1, "resigned"]
    assert first.seen == [1, NO_BROKER, 2]
    assert reign.is_over


def test_a_broken_connection_deposes_nobody(cluster: ClusterWorld) -> None:
    first = elected(cluster, 1)
    second = follower(cluster, 2)
    for _ in range(3):
        first.client.reset()
        second.client.reset()
        cluster.advance(3_000)
    assert (first.told, second.told) == ([1], [])
    assert isinstance(first.write(first.reigns[0], Create("/a", b""))[0], Created)
    first.sessions.close(lambda: None)
    cluster.until(lambda: second.is_controller)


def test_a_controller_whose_node_is_deleted_resigns_and_somebody_is_elected(
    cluster: ClusterWorld,
) -> None:
    first = elected(cluster, 1)
    cluster.call_zookeeper("delete", CONTROLLER, ANY_VERSION)
    cluster.until(lambda: len(first.told) == 3)
    assert first.told == [1, "resigned", 2]
    assert first.reigns[0].is_over
    assert not first.reigns[1].is_over


@pytest.mark.parametrize("seed", range(8))
def test_an_election_whose_answer_was_lost_counts(seed: int) -> None:
    cluster = ClusterWorld(seed)
    candidate = Candidate(cluster, 1)
    cluster.until(lambda: cluster.stat(CONTROLLER) is not None)
    assert not candidate.told
    candidate.client.reset()
    cluster.until(lambda: candidate.is_controller)
    assert candidate.told == [1]
    assert candidate.reigns[0].epoch == ControllerEpoch(1, cluster.stat(CONTROLLER_EPOCH).version)
    assert isinstance(candidate.write(candidate.reigns[0], Create("/a", b""))[0], Created)


def test_a_controller_that_cannot_be_read_is_named_once_and_left(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call_zookeeper("create", CONTROLLER, b"nonsense")
    candidate = follower(cluster, 1)
    candidate.client.reset()
    cluster.advance(3_000)
    assert candidate.seen == []
    assert caplog.text.count("znode=/controller is unreadable: delete it to elect a") == 1
    cluster.call_zookeeper("delete", CONTROLLER, ANY_VERSION)
    cluster.until(lambda: candidate.is_controller)


def test_krafts_controller_is_not_replaced(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    kraft = ControllerRegistration(BrokerId(3000), 1, kraft_controller_epoch=2)
    cluster.call_zookeeper("create", CONTROLLER, encode_controller(kraft))
    candidate = follower(cluster, 1)
    assert candidate.seen == [3000]
    assert "KRaft's controller 3000 has taken over the cluster" in caplog.text


def test_an_epoch_that_cannot_be_read_elects_nobody_until_it_can(
    cluster: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.call_zookeeper("create", CONTROLLER_EPOCH, b"many")
    candidate = Candidate(cluster, 1)
    cluster.advance(3_000)
    assert candidate.told == []
    assert (
        "the election is tried again, because of a failure at znode=/controller_epoch"
        in caplog.text
    )
    assert cluster.data(CONTROLLER_EPOCH) == b"many"
    cluster.call_zookeeper("set", CONTROLLER_EPOCH, b"5", ANY_VERSION)
    cluster.until(lambda: candidate.is_controller)
    assert candidate.told == [6]


# --- writes -------------------------------------------------------------------------------------
def test_a_controllers_write_is_all_or_nothing(cluster: ClusterWorld) -> None:
    candidate = elected(cluster, 1)
    (reign,) = candidate.reigns
    created, changed = candidate.write(reign, Create("/a", b"1"), Set("/a", b"2", 0))
    assert isinstance(created, Created)
    assert isinstance(changed, Stat)
    failed = candidate.write(reign, Create("/b", b""), Set("/missing", b"", 0))
    assert isinstance(failed, MultiFailed)
    assert failed.index == 1, "the check of the epoch is no part of what was asked"
    assert isinstance(failed.error, NoNode)
    assert cluster.stat("/b") is None


def test_a_deposed_controller_writes_nothing_and_resigns(cluster: ClusterWorld) -> None:
    first = elected(cluster, 1)
    second = follower(cluster, 2)
    # The first one does not hear that the second one was elected.
    first.client.cut("from")
    cluster.call_zookeeper("delete", CONTROLLER, ANY_VERSION)
    cluster.until(lambda: second.is_controller)
    assert first.is_controller
    answers: list[Any] = []
    first.reigns[0].write([Create("/a", b"")], answers.append)
    first.client.mend()
    cluster.until(lambda: answers)
    assert isinstance(answers[0], ControllerMoved)
    assert cluster.stat("/a") is None
    cluster.until(lambda: first.election.state is ElectionState.OTHER)
    assert first.told == [1, "resigned"]
    assert isinstance(second.write(second.reigns[0], Create("/a", b""))[0], Created)


def test_a_refused_write_ends_a_controllership(cluster: ClusterWorld) -> None:
    candidate = elected(cluster, 1)
    moved: list[str] = []
    session = candidate.sessions._session
    older = FencedWrites(session, ControllerEpoch(0, 0), lambda: moved.append("moved"))
    assert isinstance(candidate.write(older, Create("/a", b"")), ControllerMoved)
    assert isinstance(candidate.write(older, Create("/a", b"")), ControllerMoved)
    assert (moved, older.is_over, cluster.stat("/a")) == (["moved"], True, None)


def test_nothing_is_sent_once_it_is_over(cluster: ClusterWorld) -> None:
    candidate = elected(cluster, 1)
    (reign,) = candidate.reigns
    reign.stop_writes()
    assert isinstance(candidate.write(reign, Create("/a", b"")), ControllerMoved)
    cluster.advance(100)
    assert cluster.stat("/a") is None


def test_a_write_without_an_answer_says_so(cluster: ClusterWorld) -> None:
    candidate = elected(cluster, 1)
    session_id = candidate.session_id
    candidate.client.cut()
    answers: list[Any] = []
    candidate.reigns[0].write([Create("/a", b"")], answers.append)
    cluster.zookeeper.expire(session_id)
    candidate.client.mend()
    cluster.until(lambda: answers)
    assert isinstance(answers[0], SessionExpired | Exception)
    cluster.until(lambda: candidate.told == [1, "resigned", 2])
