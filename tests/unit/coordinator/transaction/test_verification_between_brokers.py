"""Whether partitions take part in a transaction that another broker coordinates."""

from typing import Any

import pytest

from klog_broker.coordinator.broker_request_sender import BrokerRequestSender
from klog_broker.coordinator.transaction.coordinator import TRANSACTION_STATE
from klog_broker.coordinator.transaction.transaction_verifier import (
    TransactionVerifier,
    VerificationApi,
)
from klog_broker.metadata.image import CONSUMER_OFFSETS
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.support.api.produce_frames import batch, frame, produce_responses
from tests.support.cluster.broker import MemoryBroker
from tests.support.cluster.connections import LISTENER, ScriptedBrokers, image_of
from tests.support.coordinator.transaction_client import (
    OTHER,
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
)
from tests.support.log.transactional_log import append_end_marker
from tests.support.runtime.fake_network import FakeStream

NONE = ErrorCode.NONE
COORDINATORS = [TopicPartition(TRANSACTION_STATE, number) for number in range(2)]


class Cluster:
    """Broker 1 is real, and leads all but the transactional ids: those are broker 2's."""

    def __init__(self, *, with_kernel: bool = False) -> None:
        self.broker: MemoryBroker = broker_with_coordinators(with_kernel=with_kernel)
        services = self.broker.broker.services
        for each in COORDINATORS:
            services.transactions.on_resign(each)
        self.leader = 2
        self.ports = {1: 9093, 2: 9093}
        self.brokers = ScriptedBrokers(services.loop)
        self.others = BrokerRequestSender(
            services.loop, self.image, LISTENER, self.brokers.connect, VerificationApi()
        )
        self.verifier = TransactionVerifier(
            BrokerId(1), self.image, services.transactions, self.others
        )
        services.verify_transactions = self.verifier.verify
        services.verifies_elsewhere = lambda each: (
            services.transactions.serving_error(each) is not NONE
        )
        self.results: list[dict[TopicPartition, ErrorCode]] = []

    def image(self) -> Any:
        return image_of(dict.fromkeys(COORDINATORS, self.leader), self.ports)

    def verify(self, transactional_id: str = "tx", *, epoch: int = 0, adds: bool = False) -> None:
        self.verifier.verify(
            transactional_id, 7, epoch, [PLAIN, OTHER], adds=adds, done=self.results.append
        )
        self.turns()

    def turns(self) -> None:
        self.broker.broker.loop.run_turn(0)
        self.broker.turns()

    def asked(self) -> AddPartitionsToTxnRequest:
        """The one request that waits at broker 2."""
        self.turns()
        (found,) = self.brokers.to(2).asked
        message: AddPartitionsToTxnRequest = found.message
        return message

    def answer(self, code: ErrorCode = NONE, **codes: ErrorCode) -> None:
        """Respond with ``code`` for all partitions, or with the transactional id's own code."""
        request = self.asked()
        self.brokers.to(2).answer(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=each.transactional_id,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name=topic.name,
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=number,
                                        partition_error_code=codes.get(each.transactional_id, code),
                                    )
                                    for number in topic.partitions
                                ],
                            )
                            for topic in each.topics
                        ],
                    )
                    for each in request.transactions
                ]
            )
        )
        self.turns()


def both(code: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return {PLAIN: code, OTHER: code}


# --- the question ---------------------------------------------------------------------------------
@pytest.mark.parametrize("adds", [False, True])
def test_the_coordinators_broker_is_asked(adds: bool) -> None:
    cluster = Cluster()
    cluster.verify(adds=adds)
    assert cluster.results == []
    (transaction,) = cluster.asked().transactions
    assert (transaction.transactional_id, transaction.producer_id) == ("tx", 7)
    assert (transaction.producer_epoch, transaction.verify_only) == (0, not adds)
    assert [(each.name, each.partitions) for each in transaction.topics] == [("plain", [0, 1])]
    cluster.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert cluster.results == [both(ErrorCode.CONCURRENT_TRANSACTIONS)]


def test_transactions_that_ask_meanwhile_go_together_and_each_has_its_own_answer() -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.verify(name)
    assert [each.transactional_id for each in cluster.asked().transactions] == ["a"]
    cluster.answer()
    assert [each.transactional_id for each in cluster.asked().transactions] == ["b", "c"]
    cluster.answer(c=ErrorCode.PRODUCER_FENCED)
    assert cluster.results == [both(NONE), both(NONE), both(ErrorCode.PRODUCER_FENCED)]


def test_a_transaction_that_asks_again_waits_for_its_own_answer() -> None:
    cluster = Cluster()
    cluster.verify("other")
    cluster.verify(epoch=0)
    cluster.verify(epoch=1)
    cluster.answer()
    (transaction,) = cluster.asked().transactions
    assert transaction.producer_epoch == 0
    cluster.answer(ErrorCode.PRODUCER_FENCED)
    (transaction,) = cluster.asked().transactions
    assert transaction.producer_epoch == 1
    cluster.answer()
    assert cluster.results == [both(NONE), both(ErrorCode.PRODUCER_FENCED), both(NONE)]


def test_a_failed_request_ends_all_waiting_verifications_at_once() -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.verify(name)
    cluster.brokers.to(2).fail()
    cluster.turns()
    assert cluster.results == [both(ErrorCode.NETWORK_EXCEPTION)] * 3
    cluster.verify("d")
    cluster.answer()
    assert cluster.results[3:] == [both(NONE)]


def test_a_broker_that_is_not_registered_any_more_is_not_waited_for() -> None:
    cluster = Cluster()
    cluster.verify()
    del cluster.ports[2]
    cluster.others.close_stale_connections()
    cluster.turns()
    assert cluster.results == [both(ErrorCode.NETWORK_EXCEPTION)]
    cluster.verify()
    assert cluster.results[1:] == [both(ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize(
    ("leader", "told"),
    [
        (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (9, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        # According to its own roles, this broker does not lead the id's partition.
        (1, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_where_no_other_broker_leads_the_id_none_is_asked(leader: int, told: ErrorCode) -> None:
    cluster = Cluster()
    cluster.leader = leader
    cluster.verify()
    assert cluster.results == [both(told)]
    assert cluster.brokers.made == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_the_whole_request_is_that_of_each_partition(
    code: ErrorCode, told: ErrorCode
) -> None:
    cluster = Cluster()
    cluster.verify("a")
    cluster.brokers.to(2).answer(AddPartitionsToTxnResponse(error_code=code))
    cluster.turns()
    assert cluster.results == [both(told)]


def test_an_answer_that_leaves_the_transaction_out_verifies_nothing() -> None:
    cluster = Cluster()
    cluster.verify()
    cluster.brokers.to(2).answer(AddPartitionsToTxnResponse())
    cluster.turns()
    assert cluster.results == [both(ErrorCode.UNKNOWN_SERVER_ERROR)]


# --- what it is asked for -------------------------------------------------------------------------
def send(cluster: Cluster, version: int = 11, *, sequence: int = 0) -> FakeStream:
    records = batch(
        b"v", producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    stream = cluster.broker.connect()
    stream.inbox += frame(records, version=version, transactional_id="tx")
    cluster.broker.turns()
    return stream


def test_a_batch_is_appended_once_the_other_broker_has_agreed() -> None:
    cluster = Cluster()
    stream = send(cluster)
    log = cluster.broker.log(*PLAIN)
    assert log.log_end_offset == 0
    assert len(cluster.asked().transactions) == 1
    cluster.answer()
    assert [each.error_code for each in produce_responses(stream, 11)] == [NONE]
    assert log.log_end_offset == 1


@pytest.mark.parametrize("version", [11, 12])
def test_batches_that_could_be_planned_ask_once_too(version: int) -> None:
    cluster = Cluster(with_kernel=True)
    streams = [send(cluster, version)]
    cluster.answer()
    assert not cluster.brokers.to(2).asked
    streams.append(send(cluster, version, sequence=1))
    assert [produce_responses(each, version)[0].error_code for each in streams] == [NONE, NONE]
    assert not cluster.brokers.to(2).asked
    assert cluster.broker.planned == 1


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 9, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_batch_is_refused_as_by_the_coordinator_here(
    code: ErrorCode, version: int, told: ErrorCode
) -> None:
    cluster = Cluster()
    stream = send(cluster, version)
    cluster.answer(code)
    assert [each.error_code for each in produce_responses(stream, version)] == [told]
    assert cluster.broker.log(*PLAIN).log_end_offset == 0


def test_a_batch_is_to_be_tried_again_when_the_other_broker_does_not_answer() -> None:
    cluster = Cluster()
    stream = send(cluster)
    cluster.brokers.to(2).fail()
    cluster.turns()
    assert [each.error_code for each in produce_responses(stream, 11)] == [
        ErrorCode.NOT_ENOUGH_REPLICAS
    ]


class Offsets:
    """TxnOffsetCommit to broker 1."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def log(self) -> Any:
        return self.cluster.broker.log(CONSUMER_OFFSETS)

    def commit(self, offset: int = 5) -> FakeStream:
        """Send an offset commit; return the connection that gets the response later."""
        rows = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=7,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name="plain", partitions=rows)],
        )
        return self.cluster.broker.send(request, 4)

    def codes_of(self, stream: FakeStream) -> list[int]:
        found: Any = decode_response(bytes(stream.sent[4:]), ApiKey.TXN_OFFSET_COMMIT, 4)
        return [row.error_code for each in found.topics for row in each.partitions]


def test_offsets_are_appended_once_the_other_broker_has_agreed() -> None:
    cluster = Cluster()
    offsets = Offsets(cluster)
    before = offsets.log.log_end_offset
    stream = offsets.commit()
    assert offsets.log.log_end_offset == before
    (transaction,) = cluster.asked().transactions
    assert [each.name for each in transaction.topics] == [CONSUMER_OFFSETS]
    cluster.answer()
    assert offsets.codes_of(stream) == [NONE]
    assert offsets.log.last_stable_offset == before
    # The transaction is open here now: no verification is needed.
    assert offsets.codes_of(offsets.commit(6)) == [NONE]
    assert not cluster.brokers.to(2).asked


def test_offsets_do_not_open_a_transaction_that_ended_while_the_other_broker_was_asked() -> None:
    cluster = Cluster()
    offsets = Offsets(cluster)
    stream = offsets.commit()
    cluster.asked()
    append_end_marker(offsets.log, 7, commit=True)
    behind = offsets.log.log_end_offset
    cluster.answer()
    assert offsets.codes_of(stream) == [ErrorCode.INVALID_TXN_STATE]
    assert offsets.log.log_end_offset == behind
    assert offsets.log.last_stable_offset == behind


def test_offsets_sent_again_meanwhile_are_part_of_the_transaction_too() -> None:
    """The client lost its connection while the other broker was asked."""
    cluster = Cluster()
    offsets = Offsets(cluster)
    streams = [offsets.commit(), offsets.commit()]
    cluster.answer()
    assert offsets.codes_of(streams[0]) == [NONE]
    if not streams[1].sent:
        cluster.answer()
    assert offsets.codes_of(streams[1]) == [NONE]


def test_offsets_are_to_be_tried_again_when_the_other_broker_does_not_answer() -> None:
    cluster = Cluster()
    offsets = Offsets(cluster)
    stream = offsets.commit()
    cluster.turns()
    cluster.brokers.to(2).fail()
    cluster.turns()
    assert offsets.codes_of(stream) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    stream = offsets.commit()
    cluster.answer()
    assert offsets.codes_of(stream) == [NONE]


def test_offsets_of_a_group_that_moves_meanwhile_are_not_appended() -> None:
    cluster = Cluster()
    offsets = Offsets(cluster)
    stream = offsets.commit()
    cluster.asked()
    before = offsets.log.log_end_offset
    cluster.broker.broker.services.groups.on_resign(TopicPartition(CONSUMER_OFFSETS, 0))
    cluster.answer()
    assert offsets.codes_of(stream) == [ErrorCode.NOT_COORDINATOR]
    assert offsets.log.log_end_offset == before


# --- the broker that is asked ---------------------------------------------------------------------
def test_the_coordinators_broker_answers_by_what_it_knows() -> None:
    coordinator = broker_with_coordinators()
    client = MemoryClient(coordinator, raises=False)
    assert client.init() == 0
    assert client.add(PLAIN) == [0]
    cluster = Cluster()
    cluster.brokers.serve["10.0.0.2"] = coordinator.call

    def verify(epoch: int, *, adds: bool = False) -> dict[TopicPartition, ErrorCode]:
        cluster.verifier.verify(
            "tx",
            client.producer_id,
            epoch,
            [PLAIN, OTHER],
            adds=adds,
            done=cluster.results.append,
        )
        cluster.turns()
        return cluster.results.pop()

    absent = ErrorCode.TRANSACTION_ABORTABLE
    assert verify(client.epoch) == {PLAIN: NONE, OTHER: absent}
    assert verify(client.epoch + 1) == both(ErrorCode.PRODUCER_FENCED)
    assert client.end_transaction() == 0
    coordinator.pass_time(1_000)
    assert set(verify(client.epoch).values()) == {absent}
    assert verify(client.epoch, adds=True) == both(NONE)
    assert verify(client.epoch) == both(NONE)
