"""The evented producer on a clock of the test: the times at which it acts."""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.errors import ConnectionFailed, TimedOut
from pyspark_klog.client.producer.evented_producer import EventedProducer
from pyspark_klog.client.producer.out_records import OutRecord, ProducerSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdResponse
from pyspark_klog.records.compression import Codec
from tests.support.cluster.virtual_time import VirtualTime

LINGER_MS, DELIVERY_MS = 20, 1_000


class StillClient:
    """A client whose requests for records stay unanswered until the test answers them."""

    def __init__(self, world: VirtualTime) -> None:
        partitions = {number: PartitionInfo(leader=1) for number in range(2)}
        self.view = ClusterView(
            {1: Address("10.0.0.7", 9092)}, {"t": TopicInfo("t", partitions=partitions)}
        )
        self.sent: list[Callable[[Any, KlogError | None], None]] = []
        self._world = world

    def send_to_any(self, _response: Any, _build: Any, on_done: Any, _timeout_ms: int) -> None:
        found = InitProducerIdResponse(producer_id=7, producer_epoch=0)
        self._world.loop.call_soon(lambda: on_done(found, None))

    def send_to_broker(
        self, _leader: int, _response: Any, _build: Any, on_done: Any, _timeout_ms: int, **_: Any
    ) -> None:
        self.sent.append(on_done)

    def follow(self, _topic: str) -> None: ...

    def doubt(self, _topic: str) -> None: ...

    def confirm(self, _topic: str) -> None: ...


class ProducerWorld(VirtualTime):
    """A producer, and the errors of its records."""

    def __init__(self) -> None:
        super().__init__()
        self.client = StillClient(self)
        self.failed: list[KlogError] = []
        self.producer = EventedProducer(
            self.client,
            ProducerSettings(
                acks=-1,
                is_idempotent=True,
                max_in_flight=5,
                batch_bytes=1_000,
                linger_ms=LINGER_MS,
                max_request_bytes=10_000,
                retries=100,
                delivery_timeout_ms=DELIVERY_MS,
                request_timeout_ms=30_000,
                topic_patience_ms=500,
                retry=Backoff(100, 100),
                codec=Codec.NONE,
                level=None,
                choose=lambda _topic, _record, _count: 0,
            ),
            self,
            loop=self.loop,
            random=lambda: 0.5,
        )

    def produce(self) -> None:
        self.producer.append("t", 0, OutRecord(None, b"v", (), 1, None), 100)
        self.turns(3)

    def on_written(self, *_: Any) -> None: ...

    def on_failed(
        self, _place: TopicPartition, records: Sequence[OutRecord], error: KlogError
    ) -> None:
        self.failed += [error] * len(records)


def test_a_record_is_sent_after_linger_ms_and_not_before() -> None:
    world = ProducerWorld()
    world.produce()
    world.advance(LINGER_MS - 1)
    assert world.client.sent == []
    world.advance(1)
    world.settle()
    assert len(world.client.sent) == 1


def test_a_late_batch_in_flight_lets_the_loop_rest_until_its_response() -> None:
    world = ProducerWorld()
    world.produce()
    world.advance(LINGER_MS)
    world.settle()
    world.advance(DELIVERY_MS * 2)
    assert world.loop.next_wake_ms() is None and world.failed == []
    world.client.sent[0](None, ConnectionFailed("the connection was lost"))
    world.turns(3)
    assert [type(error) for error in world.failed] == [TimedOut]


def test_records_behind_a_late_batch_in_flight_fail_at_their_own_time() -> None:
    world = ProducerWorld()
    world.produce()
    world.advance(LINGER_MS)
    world.settle()
    world.advance(DELIVERY_MS // 2)
    world.produce()  # waits: the first batch under a new producer id is alone in flight
    world.advance(DELIVERY_MS - 1)
    assert world.failed == []
    world.advance(1)
    assert [type(error) for error in world.failed] == [TimedOut]
