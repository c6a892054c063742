"""Markers to partitions that other brokers lead: batched, and sent again to the current leader."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from klog_broker.coordinator.broker_request_sender import MOST_PARTITIONS, BrokerRequestSender
from klog_broker.coordinator.transaction.coordinator import TRANSACTION_STATE
from klog_broker.coordinator.transaction.marker_sender import LeaderMarkerSender, MarkersApi
from klog_broker.coordinator.transaction.markers import MarkerResults, TransactionMarker
from klog_broker.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from klog_broker.metadata.image import NO_BROKER
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.cluster.connections import LISTENER, ScriptedBrokers, image_of
from tests.support.cluster.transactions import Partitions, Sim
from tests.support.coordinator.transaction_client import PLAIN, broker_with_coordinators
from tests.support.log.transactional_log import write

NONE = ErrorCode.NONE
OWN, TWOS, OTHER_OF_TWO, THREES = (TopicPartition(name, 0) for name in ("a", "b", "c", "d"))
COORDINATORS = TopicPartition(TRANSACTION_STATE, 0)
PORTS = {1: 9093, 2: 9093, 3: 9093}


class Cluster(Partitions):
    """Broker 1 coordinates; the markers of its transactions go through this."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders = {COORDINATORS: 1, OWN: 1, TWOS: 2, OTHER_OF_TWO: 2, THREES: 3}
        self.ports = dict(PORTS)
        self.may_exist: set[str] = set()
        self.own = Partitions()
        self.sender: LeaderMarkerSender | None = None
        self.sim = Sim(partitions=self)
        self.sim.log.leader_epoch = 7
        self.brokers = ScriptedBrokers(self.sim.time.loop)
        self.changed()
        self.others = BrokerRequestSender(
            self.sim.time.loop, lambda: self.image, LISTENER, self.brokers.connect, MarkersApi()
        )
        self.sender = LeaderMarkerSender(
            BrokerId(1),
            lambda: self.image,
            {OWN},
            self.own,
            self.others,
            may_exist=lambda topic: topic in self.may_exist,
        )

    def send(
        self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        assert self.sender is not None
        self.sender.send(markers, done)

    def changed(self) -> None:
        """The image is as the test has made it."""
        self.image = image_of(self.leaders, self.ports)

    def begun(self, key: str, *partitions: TopicPartition) -> ProducerIdAndEpoch:
        coordinator, replies = self.sim.coordinator, self.sim.replies
        coordinator.initialize(key, 60_000, None, replies.append)
        reply = replies.pop()
        producer = ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)
        coordinator.add_partitions(key, producer, partitions, 0, replies.append)
        assert replies.pop().error_code is NONE
        return producer

    def end_transaction(
        self, key: str, producer: ProducerIdAndEpoch, *, is_commit: bool = True
    ) -> None:
        replies = self.sim.replies
        self.sim.coordinator.end_transaction(key, producer, 0, replies.append, is_commit=is_commit)
        assert replies.pop().error_code is NONE

    def commit(self, key: str, *partitions: TopicPartition) -> ProducerIdAndEpoch:
        producer = self.begun(key, *partitions)
        self.end_transaction(key, producer)
        return producer

    def state(self, key: str = "t") -> str:
        known = self.sim.known(key)
        assert known is not None
        return known.state.kafkas_name

    def turns(self) -> None:
        self.sim.time.loop.run_turn(0)
        self.sim.time.settle()

    def asked(self, number: int) -> WriteTxnMarkersRequest:
        """The one request that waits at a broker."""
        self.turns()
        (found,) = self.brokers.to(number).asked
        message: WriteTxnMarkersRequest = found.message
        return message

    def answer(self, number: int, **codes: ErrorCode) -> None:
        """Respond for a broker: error codes by topic, NONE if not given."""
        request = self.asked(number)
        self.brokers.to(number).answer(answer_to(request, codes))
        self.turns()


def answer_to(
    request: WriteTxnMarkersRequest, codes: dict[str, ErrorCode]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=each, error_code=codes.get(topic.name, NONE)
                            )
                            for each in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def told(request: WriteTxnMarkersRequest) -> list[tuple[int, bool, list[str]]]:
    """Return for each marker its producer, whether it commits, and its topics."""
    return [
        (each.producer_id, each.transaction_result, [topic.name for topic in each.topics])
        for each in request.markers
    ]


def test_every_leader_gets_the_markers_of_its_partitions_and_the_end_waits_for_all() -> None:
    cluster = Cluster()
    producer = cluster.commit("t", OWN, TWOS, THREES, OTHER_OF_TWO)
    assert cluster.own.sent() == [(True, 0, (OWN,))]
    request = cluster.asked(2)
    assert told(request) == [(producer.producer_id, True, ["b", "c"])]
    (marker,) = request.markers
    assert (marker.producer_epoch, marker.coordinator_epoch) == (0, 7)
    assert cluster.brokers.to(2).asked[0].version == 1
    cluster.answer(2)
    assert cluster.state() == "PrepareCommit"
    cluster.answer(3)
    assert cluster.state() == "CompleteCommit"
    assert [each.address for each in cluster.brokers.made] == [
        ("10.0.0.2", 9093),
        ("10.0.0.3", 9093),
    ]


def test_what_waits_for_an_answer_goes_together_with_the_next_request() -> None:
    cluster = Cluster()
    producers = {key: cluster.begun(key, TWOS) for key in "abcde"}
    cluster.end_transaction("a", producers["a"])
    cluster.end_transaction("b", producers["b"], is_commit=False)
    assert [row[:2] for row in told(cluster.asked(2))] == [
        (producers["a"].producer_id, True),
        (producers["b"].producer_id, False),
    ]
    for key in "cde":
        cluster.end_transaction(key, producers[key])
        cluster.turns()
    cluster.answer(2)
    assert [cluster.state(key) for key in "abc"] == [
        "CompleteCommit",
        "CompleteAbort",
        "PrepareCommit",
    ]
    assert [row[0] for row in told(cluster.asked(2))] == [producers[k].producer_id for k in "cde"]
    cluster.answer(2)
    assert {cluster.state(key) for key in "cde"} == {"CompleteCommit"}
    assert len(cluster.brokers.made) == 1


def test_an_unavailable_broker_gets_its_markers_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.commit("t", OWN, TWOS)
    for _ in range(6):
        cluster.asked(2)
        cluster.brokers.to(2).fail()
        cluster.sim.time.advance(2_000)
    assert cluster.state() == "PrepareCommit"
    cluster.answer(2)
    assert cluster.state() == "CompleteCommit"
    assert len(cluster.own.markers) == 1


def test_requests_to_an_unavailable_broker_back_off() -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS)
    cluster.turns()
    asked = 0
    for _ in range(100):
        connection = cluster.brokers.to(2)
        asked += len(connection.asked)
        connection.fail()
        cluster.sim.time.advance(100)
    assert 10 <= asked <= 15


def test_a_partition_that_has_moved_gets_its_marker_from_its_new_leader() -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS, OTHER_OF_TWO)
    cluster.leaders[TWOS] = 3
    cluster.changed()
    cluster.answer(2, b=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.sim.time.advance(200)
    assert [row[2] for row in told(cluster.asked(3))] == [["b"]]
    assert not cluster.brokers.to(2).asked
    cluster.answer(3)
    assert cluster.state() == "CompleteCommit"


def test_a_broker_that_is_not_registered_any_more_is_not_waited_for() -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS)
    cluster.asked(2)
    hanging = cluster.brokers.to(2)
    cluster.leaders[TWOS] = 3
    del cluster.ports[2]
    cluster.changed()
    cluster.others.close_stale_connections()
    cluster.sim.time.advance(200)
    assert hanging.is_closed
    cluster.answer(3)
    assert cluster.state() == "CompleteCommit"


def test_a_broker_that_came_back_elsewhere_is_asked_there() -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS)
    cluster.asked(2)
    cluster.ports[2] = 9999
    cluster.changed()
    cluster.others.close_stale_connections()
    cluster.sim.time.advance(200)
    assert cluster.brokers.to(2).address == ("10.0.0.2", 9999)
    cluster.answer(2)
    assert cluster.state() == "CompleteCommit"


@pytest.mark.parametrize("leader", [NO_BROKER, 9])
def test_a_partition_without_a_leader_is_waited_for(leader: int) -> None:
    cluster = Cluster()
    cluster.leaders[TWOS] = leader
    cluster.changed()
    cluster.commit("t", TWOS)
    cluster.sim.time.advance(5_000)
    assert cluster.brokers.made == []
    assert cluster.state() == "PrepareCommit"
    results: list[MarkerResults] = []
    cluster.send([TransactionMarker(5, 0, True, 7, [TWOS], 0)], results.append)
    assert results == [{(5, TWOS): ErrorCode.LEADER_NOT_AVAILABLE}]
    cluster.leaders[TWOS] = 2
    cluster.changed()
    cluster.sim.time.advance(1_000)
    cluster.answer(2)
    assert cluster.state() == "CompleteCommit"


def test_that_a_partition_is_deleted_is_not_taken_from_another_broker() -> None:
    cluster = Cluster()
    cluster.own.answers[OWN] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    cluster.commit("t", TWOS, OWN)
    cluster.answer(2, b=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.sim.time.advance(200)
    assert cluster.state() == "PrepareCommit"
    assert cluster.own.sent() == [(True, 0, (OWN,))] * 2
    cluster.asked(2)
    del cluster.leaders[TWOS]
    cluster.changed()
    cluster.answer(2, b=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.sim.time.advance(500)
    assert cluster.state() == "CompleteCommit"


def test_what_the_image_does_not_show_and_may_exist_is_not_taken_for_deleted() -> None:
    """Roles arrive before all partitions are known; the controller may fail to read some topics."""
    cluster = Cluster()
    producer = cluster.begun("t", TWOS, THREES)
    whole = cluster.image
    cluster.image = image_of({COORDINATORS: 1}, PORTS)
    cluster.may_exist = {TWOS.topic}
    cluster.end_transaction("t", producer)
    cluster.sim.time.advance(1_000)
    assert cluster.state() == "PrepareCommit"
    cluster.image, cluster.may_exist = whole, set()
    cluster.sim.time.advance(1_000)
    cluster.answer(2)
    assert cluster.state() == "CompleteCommit"


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_a_partition_that_knows_better_is_asked_once(code: ErrorCode) -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS, THREES)
    cluster.answer(2, b=code)
    cluster.answer(3)
    cluster.sim.time.advance(5_000)
    assert not cluster.brokers.to(2).asked
    assert cluster.state() == "CompleteCommit"


def test_what_is_left_out_of_an_answer_is_asked_again() -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS, OTHER_OF_TWO)
    request = cluster.asked(2)
    request.markers[0].topics.pop()
    cluster.answer(2)
    cluster.sim.time.advance(200)
    assert [row[2] for row in told(cluster.asked(2))] == [["c"]]
    cluster.brokers.to(2).answer(WriteTxnMarkersResponse())
    cluster.sim.time.advance(500)
    cluster.answer(2)
    assert cluster.state() == "CompleteCommit"


def test_a_resigned_coordinator_sends_nothing_more_whatever_is_answered() -> None:
    cluster = Cluster()
    cluster.commit("t", TWOS, THREES)
    cluster.asked(2)
    cluster.sim.coordinator.on_resign(cluster.sim.log.topic_partition)
    cluster.answer(2, b=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.answer(3)
    cluster.sim.time.advance(10_000)
    assert not cluster.brokers.to(2).asked
    assert cluster.sim.states()[-1] == "PrepareCommit"


def test_of_one_producer_no_two_markers_are_in_a_request() -> None:
    cluster = Cluster()
    results: list[MarkerResults] = []
    for is_commit, partition in ((True, TWOS), (False, OTHER_OF_TWO)):
        marker = TransactionMarker(5, 0, is_commit, 7, [partition], 0)
        cluster.send([marker], results.append)
    assert told(cluster.asked(2)) == [(5, True, ["b"])]
    cluster.answer(2, b=ErrorCode.KAFKA_STORAGE_ERROR)
    assert told(cluster.asked(2)) == [(5, False, ["c"])]
    cluster.answer(2)
    assert results == [
        {(5, TWOS): ErrorCode.KAFKA_STORAGE_ERROR},
        {(5, OTHER_OF_TWO): NONE},
    ]


def test_more_partitions_than_a_request_may_have_come_one_after_the_other() -> None:
    cluster = Cluster()
    many = [TopicPartition("many", number) for number in range(MOST_PARTITIONS + 1)]
    cluster.leaders |= dict.fromkeys(many, 2)
    cluster.changed()
    results: list[MarkerResults] = []
    cluster.send([TransactionMarker(5, 0, True, 7, many, 0)], results.append)
    counts = []
    for _ in range(2):
        counts.append(len(cluster.asked(2).markers[0].topics[0].partition_indexes))
        cluster.answer(2)
    assert counts == [MOST_PARTITIONS, 1]
    (found,) = results
    assert len(found) == len(many)


def test_markers_that_are_too_many_together_come_one_after_the_other() -> None:
    cluster = Cluster()
    half = [TopicPartition("many", number) for number in range(MOST_PARTITIONS // 2)]
    cluster.leaders |= dict.fromkeys(half, 2)
    cluster.changed()
    results: list[MarkerResults] = []
    for producer_id in range(3):
        cluster.send([TransactionMarker(producer_id, 0, True, 7, half, 0)], results.append)
    assert [row[0] for row in told(cluster.asked(2))] == [0, 1]
    cluster.answer(2)
    assert [row[0] for row in told(cluster.asked(2))] == [2]
    cluster.answer(2)
    assert [len(each) for each in results] == [len(half)] * 3


def test_waiting_requests_fail_when_the_broker_stops() -> None:
    cluster = Cluster()
    results: list[MarkerResults] = []
    for producer_id in (5, 6):
        cluster.send([TransactionMarker(producer_id, 0, True, 7, [TWOS], 0)], results.append)
        cluster.turns()
    cluster.others.close()
    assert results == [
        {(5, TWOS): ErrorCode.NETWORK_EXCEPTION},
        {(6, TWOS): ErrorCode.NETWORK_EXCEPTION},
    ]


def test_no_request_is_sent_once_the_broker_stops() -> None:
    cluster = Cluster()
    results: list[MarkerResults] = []
    cluster.others.close()
    cluster.send([TransactionMarker(5, 0, True, 7, [TWOS], 0)], results.append)
    cluster.turns()
    assert results == [{(5, TWOS): ErrorCode.NETWORK_EXCEPTION}]
    assert not cluster.brokers.made


# --- a broker that is asked -----------------------------------------------------------------------
def test_another_broker_writes_the_markers_and_refuses_those_of_an_older_coordinator() -> None:
    other = broker_with_coordinators()
    log = other.log(*PLAIN)
    cluster = Cluster()

    def serve(request: Any, version: int) -> Any:
        return other.call(request, version)

    cluster.brokers.serve["10.0.0.2"] = serve
    cluster.leaders[PLAIN] = 2
    cluster.changed()
    producer = cluster.begun("t", PLAIN)
    write(log, producer.producer_id, 0, epoch=producer.producer_epoch)
    assert log.last_stable_offset == 0
    cluster.end_transaction("t", producer)
    cluster.turns()
    assert cluster.state() == "CompleteCommit"
    assert log.last_stable_offset == log.log_end_offset
    # The next transaction of the same epoch, and a marker that a coordinator of before has left.
    write(log, producer.producer_id, 1, epoch=producer.producer_epoch)
    stable = log.last_stable_offset
    results: list[MarkerResults] = []
    late = TransactionMarker(*producer, False, 6, [PLAIN], 0)
    cluster.send([late], results.append)
    cluster.turns()
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert results == [{(producer.producer_id, PLAIN): fenced}]
    assert log.last_stable_offset == stable
    cluster.send([late._replace(coordinator_epoch=8)], results.append)
    cluster.turns()
    assert results[1] == {(producer.producer_id, PLAIN): NONE}
    assert log.last_stable_offset == log.log_end_offset
