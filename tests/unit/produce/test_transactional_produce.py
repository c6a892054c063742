"""Transactional Produce: verification by the coordinator, and the errors that result from it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.builder import BatchBuilder
from tests.support.api.produce_frames import batch, frame, produce_responses, values
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.log.transactional_log import append_end_marker
from tests.support.runtime.fake_network import FakeStream
from tests.support.security.rules import Rules

PLAIN = TopicPartition("plain", 0)
NONE = ErrorCode.NONE


@dataclass
class FakeCoordinator:
    """A coordinator that responds with ``codes``, at once or when ``answer`` is called."""

    codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    is_late: bool = False
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        adds: bool,
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, partitions, adds))
        if self.is_late:
            self.waiting.append(lambda: done(self.codes))
        else:
            done(self.codes)

    def answer(self, broker: MemoryBroker) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            broker.broker.loop.post(each)
        broker.turns()


@pytest.fixture(params=[False, True], ids=["generic", "kernel"])
def broker(request: pytest.FixtureRequest) -> MemoryBroker:
    return new_broker(with_kernel=request.param)


@pytest.fixture
def coordinator(broker: MemoryBroker) -> FakeCoordinator:
    made = FakeCoordinator()
    broker.broker.services.verify_transactions = made.verify
    return made


def records(
    sequence: int, *contents: bytes, epoch: int = 0, producer_id: int = 7, **more: Any
) -> bytes:
    return batch(
        *(contents or (b"v",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        **more,
    )


def send(
    broker: MemoryBroker, stream: FakeStream, data: bytes, version: int = 9, **more: Any
) -> None:
    stream.inbox += frame(data, version=version, transactional_id="tx", **more)
    broker.turns()


def codes(stream: FakeStream, version: int = 9) -> list[int]:
    return [each.error_code for each in produce_responses(stream, version)]


def test_only_the_first_batch_of_a_transaction_is_asked_about(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    stream = broker.connect()
    for sequence in range(3):
        send(broker, stream, records(sequence))
    assert codes(stream) == [NONE] * 3
    assert coordinator.asked == [("tx", 7, 0, [PLAIN], False)]
    append_end_marker(broker.log("plain"), 7, commit=True)
    send(broker, stream, records(3))
    assert codes(stream) == [NONE]
    assert len(coordinator.asked) == 2


def test_batches_that_come_with_the_first_are_not_asked_about(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    stream = broker.connect()
    for sequence in range(20):
        stream.inbox += frame(records(sequence), version=9, transactional_id="tx")
    broker.turns()
    assert codes(stream) == [NONE] * 20
    assert len(coordinator.asked) == 1


def test_access_to_the_transactional_id_is_checked_for_each_batch() -> None:
    """A plan does not check this access, so it takes no transactional batches under rules."""
    rules = Rules()
    broker = new_broker(with_kernel=True, authorizer=rules)
    broker.broker.services.verify_transactions = FakeCoordinator().verify
    stream = broker.connect()
    for sequence in range(2):
        send(broker, stream, records(sequence))
    assert codes(stream) == [NONE, NONE]
    rules.deny(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, "tx")
    send(broker, stream, records(2))
    assert codes(stream) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    broker.close()


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_batches_within_a_transaction_are_planned(version: int) -> None:
    broker = new_broker(with_kernel=True)
    broker.broker.services.verify_transactions = FakeCoordinator().verify
    stream = broker.connect()
    for sequence in range(3):
        send(broker, stream, records(sequence), version)
    assert broker.planned == 3
    send(broker, stream, batch(b"x", producer_id=7, producer_epoch=0, base_sequence=3), version)
    send(broker, stream, records(3, epoch=1), version)
    assert broker.planned == 3
    append_end_marker(broker.log("plain"), 7, commit=True)
    send(broker, stream, records(3), version)
    assert broker.planned == 4
    assert broker.log("plain").last_stable_offset == 4


def test_a_transaction_begins_with_its_first_batch(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    """However many batches of it come together: more than a producer's window has."""
    stream, log = broker.connect(), broker.log("plain")
    send(broker, stream, batch(b"before"))
    assert codes(stream) == [NONE]
    for epoch, first_offset in ((0, 1), (1, 10)):
        for sequence in range(8):
            data = records(sequence, epoch=epoch)
            stream.inbox += frame(data, version=13, transactional_id="tx")
        broker.turns()
        assert [each.base_offset for each in produce_responses(stream, 13)] == [
            first_offset + each for each in range(8)
        ]
        entry = log.producer(7)
        assert entry is not None
        assert entry.current_transaction_first_offset == log.last_stable_offset == first_offset
        assert [each.first_offset - first_offset for each in entry.batches] == [3, 4, 5, 6, 7]
        append_end_marker(log, 7, commit=True, epoch=epoch + 1)
        assert log.last_stable_offset == log.log_end_offset == first_offset + 9
    assert len(coordinator.asked) == 2


def test_what_does_not_begin_a_transaction_is_left_to_the_handler(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    stream, log = broker.connect(), broker.log("plain")
    send(broker, stream, records(0), 13)
    append_end_marker(log, 7, commit=True, epoch=1)
    # Batches with an old epoch, with a wrong first sequence, and with a wrong CRC.
    broken = bytearray(records(0, epoch=1))
    broken[-1] ^= 1
    for data in (records(0), records(1, epoch=1), bytes(broken)):
        send(broker, stream, data, 13)
    assert codes(stream, 13) == [
        NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.CORRUPT_MESSAGE,
    ]
    assert log.last_stable_offset == log.log_end_offset == 2
    send(broker, stream, records(0, epoch=1), 13)
    assert codes(stream, 13) == [NONE]
    assert log.last_stable_offset == 2


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True), (13, True)])
def test_from_version_12_on_the_coordinator_adds_the_partition(
    broker: MemoryBroker, coordinator: FakeCoordinator, version: int, adds: bool
) -> None:
    stream = broker.connect()
    send(broker, stream, records(0), version)
    assert codes(stream, version) == [NONE]
    assert coordinator.asked[0][-1] is adds
    # Transaction version 2 begins each transaction with sequence 0.
    send(broker, stream, records(5, producer_id=8), version)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if adds else NONE
    assert codes(stream, version) == [out_of_order]


@pytest.mark.parametrize(
    ("answer", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 9, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_the_coordinators_error_becomes_an_error_of_produce(
    broker: MemoryBroker,
    coordinator: FakeCoordinator,
    answer: ErrorCode,
    version: int,
    told: ErrorCode,
) -> None:
    coordinator.codes[PLAIN] = answer
    stream = broker.connect()
    send(broker, stream, records(0), version)
    (found,) = produce_responses(stream, version)
    assert found.error_code == told
    assert (found.base_offset, broker.log("plain").log_end_offset) == (-1, 0)
    coordinator.codes.clear()
    send(broker, stream, records(0), version)
    assert codes(stream, version) == [NONE]


def test_each_partition_has_its_own_answer(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    rows = [PartitionProduceData(index=each, records=records(0)) for each in range(3)]
    request = ProduceRequest(
        transactional_id="tx",
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="plain", partition_data=rows)],
    )
    coordinator.codes[TopicPartition("plain", 1)] = ErrorCode.INVALID_TXN_STATE
    stream = broker.connect()
    stream.inbox += encode_request(RequestHeader(ApiKey.PRODUCE, 9, 0, "c"), request)
    broker.turns()
    assert codes(stream) == [NONE, ErrorCode.INVALID_TXN_STATE, NONE]
    assert [broker.log("plain", each).log_end_offset for each in range(3)] == [1, 0, 1]


def test_nothing_overtakes_a_batch_that_is_being_verified(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.is_late = True
    stream, other = broker.connect(), broker.connect()
    for sequence in range(4):
        stream.inbox += frame(records(sequence, b"%d" % sequence), transactional_id="tx")
    broker.turns()
    assert not stream.sent
    # Other connections go on, in the same buffers.
    for _ in range(20):
        other.inbox += frame(batch(b"x" * 50), partition=1)
        broker.turns()
    assert codes(other) == [NONE] * 20
    coordinator.answer(broker)
    assert codes(stream) == [NONE] * 4
    assert values(broker) == [b"0", b"1", b"2", b"3"]
    # A plan asks, too; what has to wait it leaves to the handler.
    assert len(coordinator.asked) == (2 if broker.broker.plans is not None else 1)


def test_a_marker_that_comes_first_voids_the_answer(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.is_late = True
    stream = broker.connect()
    send(broker, stream, records(0))
    log = broker.log("plain")
    append_end_marker(log, 7, commit=False)
    coordinator.answer(broker)
    assert codes(stream) == [ErrorCode.INVALID_TXN_STATE]
    assert (log.log_end_offset, log.last_stable_offset) == (1, 1)


def test_a_client_that_goes_while_it_is_verified(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    """The append goes on although the client has gone, as any append does."""
    coordinator.is_late = True
    stream = broker.connect()
    send(broker, stream, records(0, b"last"))
    stream.is_at_end = True
    broker.turns()
    coordinator.answer(broker)
    assert values(broker) == [b"last"]


def test_a_transactional_batch_needs_a_transactional_id(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    stream = broker.connect()
    stream.inbox += frame(records(0))
    broker.turns()
    (found,) = produce_responses(stream)
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "without a transactional id" in (found.error_message or "")
    assert coordinator.asked == []


def test_a_transactional_id_without_transactional_batches_changes_nothing(
    broker: MemoryBroker, coordinator: FakeCoordinator
) -> None:
    stream = broker.connect()
    send(broker, stream, batch(b"plain", producer_id=7, producer_epoch=0, base_sequence=0))
    assert codes(stream) == [NONE]
    assert coordinator.asked == []
    assert broker.log("plain").last_stable_offset == 1


def test_two_producers_in_one_request(broker: MemoryBroker, coordinator: FakeCoordinator) -> None:
    rows = [
        PartitionProduceData(index=each, records=records(0, producer_id=7 + each))
        for each in range(2)
    ]
    request = ProduceRequest(
        transactional_id="tx",
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="plain", partition_data=rows)],
    )
    stream = broker.connect()
    stream.inbox += encode_request(RequestHeader(ApiKey.PRODUCE, 9, 0, "c"), request)
    broker.turns()
    assert codes(stream) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert coordinator.asked == []


def test_hostile_batches(broker: MemoryBroker, coordinator: FakeCoordinator) -> None:
    control = BatchBuilder(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True, is_control=True
    )
    control.append(b"\0\0\0\1", b"\0\0\0\0\0\0", 1)
    stream = broker.connect()
    for data in (
        control.build(),
        records(-1),
        records(0, producer_id=-1, epoch=-1),
        records(0, producer_id=-5),
        records(0)[:61],
        records(0)[:40],
    ):
        send(broker, stream, data)
    assert set(codes(stream)) <= {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}
    assert broker.log("plain").log_end_offset == 0
    send(broker, stream, records(0))
    assert codes(stream) == [NONE]
    # Within the transaction: no other kind, and no gap.
    send(broker, stream, batch(b"x", producer_id=7, producer_epoch=0, base_sequence=1))
    send(broker, stream, records(2))
    assert codes(stream) == [ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_producer_of_an_id_without_a_coordinator_tries_again(broker: MemoryBroker) -> None:
    stream = broker.connect()
    send(broker, stream, records(0))
    (found,) = produce_responses(stream)
    assert found.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "COORDINATOR_NOT_AVAILABLE" in (found.error_message or "")
