"""The producer with brokers that are slow, silent or starting, or a topic that is created again."""

import itertools
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from pyspark_klog import testing
from pyspark_klog.client.clock import monotonic_ms
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import DeliveryFailed, TopicMissing
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response
from tests.support.client.cases import batch, client_of
from tests.support.client.stand_in_broker import StandInBroker
from tests.support.eventually import eventually

_P, _Q = TopicPartition("t", 0), TopicPartition("t", 1)

Change = Callable[[Request, Response], Response]


class _Broker(StandInBroker):
    """``change`` may alter each answer, ``begin`` is called with each connection."""

    def __init__(
        self, change: Change = lambda _, answer: answer, begin: Callable[[], None] = lambda: None
    ) -> None:
        self._change = change
        self._begin = begin
        super().__init__()
        self.port = self._port

    def _serve(self, connection: socket.socket) -> None:
        self._begin()
        super()._serve(connection)

    def _answer(self, request: Request) -> Response:
        return self._change(request, super()._answer(request))


@contextmanager
def _brokers(*brokers: _Broker) -> Iterator[str]:
    """The address of the first."""
    try:
        yield brokers[0].bootstrap_servers
    finally:
        for each in brokers:
            each.close()


def test_without_acknowledgements_memory_is_bounded_by_what_was_sent(
    klog_broker: testing.Broker, klog_topic: str
) -> None:
    limits = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_000}
    servers = klog_broker.bootstrap_servers
    with client_of(servers, acks="0", buffer_memory=1 << 20, **limits) as client:
        producer = Producer(client)
        producer.partition_count(klog_topic)
        klog_broker.pause()
        with pytest.raises(DeliveryFailed, match="not acknowledged within 2000 ms"):
            # The system's own buffers take some of it.
            for _ in range(100):
                producer.add(TopicPartition(klog_topic, 0), *batch([b"k"], size=500_000))
                assert producer._core.pending_bytes <= 1 << 20


def test_a_leader_that_is_silent_at_first_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader accepts a connection and sends nothing for longer than a request may take."""
    really_connect = socket.create_connection

    def connect(*args: object, **named: object) -> socket.socket:
        made: socket.socket = really_connect(*args, **named)  # type: ignore[arg-type]
        # As to a broker far away: its time begins later than the caller's.
        until_ms = monotonic_ms() + 20
        eventually(lambda: monotonic_ms() >= until_ms, what="a slow connection")
        return made

    connections = itertools.count()
    is_asked_again = threading.Event()

    def begin() -> None:
        if next(connections):
            is_asked_again.set()
        is_asked_again.wait(60)

    leader = _Broker(begin=begin)

    def lead(_: Request, answer: Response) -> Response:
        if isinstance(answer, MetadataResponse):
            answer.brokers.append(
                MetadataResponseBroker(node_id=1, host="127.0.0.1", port=leader.port)
            )
            answer.topics[0].partitions[0].leader_id = 1
        return answer

    monkeypatch.setattr(socket, "create_connection", connect)
    with (
        _brokers(_Broker(lead), leader) as servers,
        client_of(servers, request_timeout_ms=600, delivery_timeout_ms=60_000) as client,
    ):
        producer = Producer(client)
        producer.partition_count("t")
        producer.add(_P, *batch([b"k"]))
        producer.flush()
        assert producer.written_records == 1


def test_a_broker_that_knows_of_none_yet_is_asked_again() -> None:
    asked = itertools.count()

    def forget(_: Request, answer: Response) -> Response:
        if isinstance(answer, MetadataResponse) and next(asked) < 2:
            answer.brokers.clear()
        return answer

    with _brokers(_Broker(forget)) as servers, client_of(servers) as client:
        assert list(client.refresh(["t"]).brokers) == [0]


def test_time_in_which_the_caller_does_something_else_makes_nothing_late(
    klog_broker: testing.Broker, klog_topic: str
) -> None:
    """Spark may take minutes for the next rows; not all batches before could be sent at once."""
    later_ms = 0
    partition = TopicPartition(klog_topic, 0)
    with BlockingClient(
        {"bootstrap.servers": klog_broker.bootstrap_servers},
        now_ms=lambda: monotonic_ms() + later_ms,
    ) as client:
        producer = Producer(client)
        producer.partition_count(klog_topic)
        producer.add_all((partition, *batch([b"k"])) for _ in range(12))
        later_ms = 200_000
        producer.add(partition, *batch([b"k"]))
        later_ms = 400_000
        producer.flush()
        assert producer.written_records == 13


def test_what_a_broker_says_of_records_is_one_line_with_a_bound() -> None:
    def refuse(_: Request, answer: Response) -> Response:
        if isinstance(answer, ProduceResponse):
            row = answer.responses[0].partition_responses[0]
            row.error_code = ErrorCode.INVALID_RECORD.value
            row.error_message = "no key\n\x1b[31m" + "x" * 20_000
        return answer

    with _brokers(_Broker(refuse)) as servers, client_of(servers) as client:
        producer = Producer(client)
        producer.partition_count("t")
        with pytest.raises(
            DeliveryFailed, match=r"for t-0: INVALID_RECORD: no key \[31mxx"
        ) as said:
            producer.add(_P, *batch([b"k"]))
            producer.flush()
    assert str(said.value).isprintable()
    assert len(str(said.value)) < 2_000


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_a_broker_that_knows_no_producer_is_not_asked_for_ids_without_end(
    klog_broker: testing.Broker, klog_topic: str, code: ErrorCode
) -> None:
    faults = klog_broker.faults
    faults.answer("Produce", code, topic=klog_topic, times=None)
    asked = faults.delay("InitProducerId", 0)
    limits = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 3_000}
    with client_of(klog_broker.bootstrap_servers, **limits) as client:
        producer = Producer(client)
        producer.partition_count(klog_topic)
        with pytest.raises(DeliveryFailed, match="not acknowledged within 3000 ms"):
            producer.add(TopicPartition(klog_topic, 0), *batch([b"k"]))
            producer.flush()
    # Two at once, then by retry.backoff.ms: after 100, 200, 400, 800, 1000, varied by 20 %.
    assert 2 <= asked.fired <= 12


def test_a_second_new_identity_waits_unless_records_were_written_in_between(
    klog_broker: testing.Broker, klog_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_of(klog_broker.bootstrap_servers) as client:
        waits: list[int] = []

        def wait_ms(failures: int) -> int:
            waits.append(failures)
            return 0

        monkeypatch.setattr(client, "wait_ms", wait_ms)
        producer = Producer(client)
        producer.partition_count(klog_topic)
        for times in (2, 1):
            forgets = klog_broker.faults.answer(
                "Produce", ErrorCode.UNKNOWN_PRODUCER_ID, topic=klog_topic, times=times
            )
            producer.add(TopicPartition(klog_topic, 0), *batch([b"k"]))
            producer.flush()
            assert forgets.fired == times
        assert producer.written_records == 2
    assert waits == [1]


def test_responses_by_the_id_of_a_recreated_topic() -> None:
    """The topic's new id is known before the response with its old id is processed."""
    old, new = UUID(int=1), UUID(int=2)
    current = old
    named = []

    def change(request: Request, answer: Response) -> Response:
        nonlocal current
        if isinstance(answer, ApiVersionsResponse):
            rows = {row.api_key: row for row in answer.api_keys}
            return ApiVersionsResponse(
                api_keys=[
                    *(row for key, row in rows.items() if key not in (0, 3)),
                    ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=12),
                    ApiVersion(api_key=ApiKey.PRODUCE, min_version=3, max_version=13),
                ]
            )
        if isinstance(answer, MetadataResponse):
            answer.topics[0].topic_id = current
            answer.topics[0].partitions = [
                MetadataResponsePartition(partition_index=n, leader_id=0) for n in range(2)
            ]
        if isinstance(request, ProduceRequest):
            (topic,) = request.topic_data
            named.append(topic.topic_id)
            current = new
            rows_of = [PartitionProduceResponse(index=row.index) for row in topic.partition_data]
            return ProduceResponse(
                responses=[
                    TopicProduceResponse(topic_id=topic.topic_id, partition_responses=rows_of)
                ]
            )
        return answer

    with _brokers(_Broker(change)) as servers, client_of(servers) as client:
        producer = Producer(client)
        producer.partition_count("t")
        producer.add(_P, *batch([b"k"]))
        client.refresh(["t"])  # answered after the records, on the same connection
        assert client.view.topic_id("t") == new
        producer.flush()
        assert producer.written_records == 1
        producer.add(_Q, *batch([b"k"]))
        producer.flush()
        assert named == [old, new]


def test_an_outage_while_records_are_written_and_its_end_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = itertools.count()

    def lead_elsewhere(request: Request, answer: Response) -> Response:
        if isinstance(answer, MetadataResponse) and 1 <= next(asked) <= 4:
            answer.brokers[0].port = 1  # no broker listens there
        return answer

    with (
        _brokers(_Broker(lead_elsewhere)) as servers,
        client_of(servers, retry_backoff_ms=1, reconnect_backoff_ms=1) as client,
    ):
        producer = Producer(client)
        producer.partition_count("t")
        client.forget_topic("t")
        producer.add(_P, *batch([b"k"]))
        producer.flush()
        assert producer.written_records == 1
    failed, again = caplog.messages
    words = r"writing records has failed.* and is tried again for up to 120 s \(delivery\.timeout"
    assert re.match(words + r"\.ms\): could not connect to 127\.0\.0\.1:1: ", failed)
    assert re.fullmatch(r"writing records works again after \d+ m?s", again)


def test_a_topic_that_is_waited_for_is_named_before_the_time_is_over(
    klog_broker: testing.Broker, klog_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    klog_broker.faults.answer("Metadata", missing, topic=klog_topic, times=None)
    now_ms = 0

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        now_ms += round(seconds * 1_000)

    with (
        BlockingClient(
            {"bootstrap.servers": klog_broker.bootstrap_servers},
            now_ms=lambda: now_ms,
            sleep=sleep,
            random=lambda: 0.5,
        ) as client,
        pytest.raises(TopicMissing, match="after waiting 60000 ms"),
    ):
        Producer(client).partition_count(klog_topic)
    first = caplog.messages[0]
    assert first.startswith(f"asking for topic {klog_topic} has failed for 6 s and is tried again")
    assert f"(max.block.ms): UNKNOWN_TOPIC_OR_PARTITION: topic {klog_topic}" in first
    assert len(caplog.messages) == 4
