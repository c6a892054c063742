"""The evented client in memory: connecting, and requests in order and within bounds."""

from dataclasses import replace

import pytest

from klog_broker.runtime.event_loop import wheel
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.net import poller
from klog_broker.runtime.net.sockets import Network, StreamSocket
from pyspark_klog.client.errors import UnsupportedByBroker
from pyspark_klog.client.transport import event_loop
from pyspark_klog.client.transport.event_loop import Connector, EventLoop, LoopStream, LoopTimer
from pyspark_klog.client.transport.evented_link import RECEIVE_BYTES
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from pyspark_klog.protocol.apis.fetch import FetchRequest, FetchResponse
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_klog.protocol.headers import encode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.support.client.evented_world import DEFAULTS, EventedWorld, metadata_request


def broker_side(
    loop: Loop, network: Network, stream: StreamSocket, timer: wheel.Timer
) -> tuple[EventLoop, Connector, LoopStream, LoopTimer]:
    """mypy checks here that klog's broker has all parts that the driver needs."""
    return loop, network, stream, timer


def test_the_brokers_poller_reports_the_same_bits() -> None:
    ours = (event_loop.READABLE, event_loop.WRITABLE, event_loop.BROKEN)
    assert ours == (poller.READABLE, poller.WRITABLE, poller.BROKEN)


# --- connecting ----------------------------------------------------------------------------------


def test_a_connection_is_made_when_it_is_first_asked() -> None:
    world = EventedWorld(replace(DEFAULTS, from_address="10.0.0.1"))
    world.turns()
    assert world.network.asked == []
    world.request_metadata("a")
    world.turns()
    assert world.network.asked == [("10.0.0.7", 9092, "10.0.0.1")]


def test_versions_are_asked_for_before_anything_else() -> None:
    world = EventedWorld()
    world.request_metadata("a")
    world.turns()
    broker = world.broker
    [versions] = broker.requests()
    assert versions.message.api_key == ApiKey.API_VERSIONS
    broker.reply_to(versions)
    world.turns()
    [asked] = broker.requests()
    assert asked.version == 12
    broker.reply_to(asked)
    world.turns()
    assert world.taken() == [("a", "a")]
    assert world.connection.unanswered == 0


def test_an_older_broker_is_asked_in_its_own_versions() -> None:
    world = EventedWorld()
    world.request_metadata("a")
    world.turns()
    broker = world.broker
    [versions] = broker.requests()
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=1)
    refusal = ApiVersionsResponse(error_code=35, api_keys=[own])
    broker.stream.inbox += encode_response(versions.correlation_id, refusal, 0)
    world.turns()
    [again] = broker.requests()
    assert again.version == 1
    broker.reply_to(again)
    world.turns()
    assert broker.topics() == ["a"]


def test_a_refused_port_fails_all_that_wait_in_order() -> None:
    world = EventedWorld()
    world.network.is_slow = True
    world.request_metadata("a")
    world.request_metadata("b")
    world.turns()
    [stream] = world.network.opened
    stream.failed_connect = ConnectionRefusedError(111, "Connection refused")
    stream.is_broken = True
    world.turns()
    assert "could not connect to 10.0.0.7:9092: Connection refused" in world.error()
    assert world.taken() == [("a", "ConnectionFailed"), ("b", "ConnectionFailed")]
    assert stream.is_closed
    assert world.network.poller.interest == {}


def test_a_stale_event_of_a_descriptors_last_owner_does_not_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EventedWorld()
    world.network.is_slow = True
    world.request_metadata("a")
    world.turns()
    [stream] = world.network.opened
    with monkeypatch.context() as patched:
        stale = [(stream.fileno(), event_loop.READABLE)]
        patched.setattr(world.network.poller, "poll", lambda _: stale)
        world.turns(1)
    stream.failed_connect = ConnectionRefusedError(111, "Connection refused")
    stream.is_broken = True
    world.turns()
    assert "could not connect" in world.error()


@pytest.mark.parametrize(
    "error", [OSError(99, "Cannot assign requested address"), ValueError("no IP address")]
)
def test_an_address_that_fails_at_once_is_an_answer(error: OSError | ValueError) -> None:
    world = EventedWorld()
    world.network.refuses = error
    world.request_metadata("a")
    world.turns()
    assert str(error.args[-1]) in world.error()
    assert world.taken() == [("a", "ConnectionFailed")]


def test_a_peer_that_does_not_accept_is_given_up() -> None:
    world = EventedWorld()
    world.network.is_slow = True
    world.request_metadata("a", timeout_ms=60_000)
    world.turns()
    world.turns(after_ms=4_999)
    assert world.answers == []
    world.turns(after_ms=1)
    assert "could not connect to 10.0.0.7:9092: no answer within 5000 ms" in world.error()
    assert world.network.opened[0].is_closed


def test_a_peer_that_does_not_answer_api_versions_is_given_up() -> None:
    world = EventedWorld()
    world.request_metadata("a", timeout_ms=60_000)
    world.turns()
    world.turns(after_ms=5_000)
    assert "10.0.0.7:9092 did not answer API_VERSIONS in time" in world.error()
    assert world.taken() == [("a", "RequestTimedOut")]


def test_a_reset_instead_of_versions_hints_at_tls() -> None:
    world = EventedWorld()
    world.request_metadata("a")
    world.turns()
    world.network.opened[0].is_broken = True
    world.turns()
    assert "closed the connection while asking for versions: has this listener TLS?" in (
        world.error()
    )


def test_waits_between_connections_grow_with_jitter_until_a_request_is_answered() -> None:
    world = EventedWorld()
    world.network.refuses = ConnectionRefusedError(111, "Connection refused")
    waits_ms = []
    for world.chance in (0.5, 0.5, 0.0, 0.5):
        count = len(world.network.asked)
        world.request_metadata("a", timeout_ms=60_000)
        world.turns()
        waited_ms = 0
        while len(world.network.asked) == count:
            world.turns(3, after_ms=10)
            waited_ms += 10
        waits_ms.append(waited_ms)
    assert waits_ms == [0, 100, 200, 320]  # after 0, 1, 2 failures; the third varied by a fifth
    world.network.refuses = None
    world.turns(after_ms=400)
    world.taken()
    broker = world.ready()
    broker.stream.is_at_end = True
    world.turns()
    world.request_metadata("b")
    world.turns(after_ms=99)
    assert len(world.network.opened) == 1
    world.turns(after_ms=1)
    assert len(world.network.opened) == 2


def test_a_peer_that_only_negotiates_and_closes_is_not_asked_ever_faster() -> None:
    world = EventedWorld()
    for opened, wait_ms in enumerate((0, 100, 200, 400)):
        world.request_metadata("a", timeout_ms=60_000)
        world.turns(after_ms=wait_ms - 1 if wait_ms else 0)
        assert len(world.network.opened) == opened + (wait_ms == 0)
        world.turns(after_ms=1)
        broker = world.broker
        [versions] = broker.requests()
        broker.reply_to(versions)
        world.turns()
        broker.stream.is_at_end = True
        world.turns()
        assert world.taken() == [("a", "ConnectionFailed")]


# --- requests ------------------------------------------------------------------------------------


def test_requests_are_pipelined_up_to_the_bound() -> None:
    world = EventedWorld(replace(DEFAULTS, max_in_flight=2))
    broker = world.ready()
    for name in "abcd":
        world.request_metadata(name)
    world.turns()
    first, second = broker.requests()
    assert world.connection.unanswered == 4
    broker.reply_to(first)
    world.turns()
    assert world.taken() == [("a", "a")]
    [third] = broker.requests()
    broker.reply_to(second)
    broker.reply_to(third)
    world.turns()
    assert world.taken() == [("b", "b"), ("c", "c")]
    assert broker.topics() == ["d"]


def test_a_request_waits_until_the_peers_window_has_space() -> None:
    world = EventedWorld()
    broker = world.ready()
    broker.stream.room_bytes = 10
    world.request_metadata("a")
    world.turns()
    assert broker.requests() == []
    broker.stream.room_bytes = 1 << 20
    world.turns()
    [asked] = broker.requests()
    broker.reply_to(asked)
    world.turns()
    assert world.taken() == [("a", "a")]
    # With nothing to send the loop may sleep, however much room there is.
    assert world.network.poller.interest == {broker.stream.fileno(): event_loop.READABLE}


def test_large_records_go_to_the_stream_as_they_are() -> None:
    world = EventedWorld()
    broker = world.ready()
    records = bytes(200_000)
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    world.connection.send(ProduceResponse, lambda _: request, lambda *_: None, 1_000)
    world.turns()
    assert any(piece.obj is records for piece in broker.stream.pieces)


def test_one_connection_does_not_keep_the_loop_to_itself() -> None:
    world = EventedWorld()
    broker = world.ready()
    world.request_metadata("a")
    world.turns()
    [asked] = broker.requests()
    size_bytes = 3 * RECEIVE_BYTES
    broker.stream.inbox += size_bytes.to_bytes(4, "big") + asked.correlation_id.to_bytes(4, "big")
    broker.stream.inbox += bytes(size_bytes - 4)
    world.turns(1)
    assert len(broker.stream.inbox) == 2 * RECEIVE_BYTES + 4
    world.turns(3)
    assert broker.stream.inbox == b""


def test_an_api_that_the_broker_lacks_fails_alone_and_in_its_turn() -> None:
    world = EventedWorld()
    broker = world.ready()
    errors: list[KlogError | None] = []

    def note(_: FetchResponse | None, error: KlogError | None) -> None:
        errors.append(error)
        world.answers.append(("fetch", "no"))

    world.request_metadata("a")
    world.connection.send(FetchResponse, lambda _: FetchRequest(), note, 1_000)
    world.request_metadata("b")
    world.turns()
    assert world.answers == []
    first, second = broker.requests()
    broker.reply_to(first)
    world.turns()
    assert world.taken() == [("a", "a"), ("fetch", "no")]
    assert isinstance(errors[0], UnsupportedByBroker)
    broker.reply_to(second)
    world.turns()
    assert world.taken() == [("b", "b")]


def test_the_callers_own_bounds_of_versions_hold() -> None:
    world = EventedWorld()
    broker = world.ready()
    chosen: list[int] = []

    def build(version: int) -> MetadataRequest:
        chosen.append(version)
        return metadata_request("a")

    world.connection.send(MetadataResponse, build, lambda *_: None, 1_000, low=4, high=9)
    world.turns()
    [asked] = broker.requests()
    assert (asked.version, chosen) == (9, [9])


def test_a_request_without_a_response_is_done_once_it_is_sent() -> None:
    world = EventedWorld()
    broker = world.ready()
    broker.stream.room_bytes = 30
    records = b"x" * 100
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    done: list[ProduceResponse | None] = []
    world.connection.send(
        ProduceResponse,
        lambda _: request,
        lambda response, _error: done.append(response),
        1_000,
        expects_response=False,
    )
    world.turns()
    assert done == [] and world.connection.unanswered == 1
    broker.stream.room_bytes = 1 << 20
    world.turns()
    assert done == [ProduceResponse()] and world.connection.unanswered == 0
    world.request_metadata("after")
    world.turns()
    assert len(broker.requests()) == 2
