"""How the evented client's connections end: in time, by the peer, by close, and from callbacks."""

from dataclasses import replace

import pytest

from pyspark_klog.client.errors import ConnectionFailed
from pyspark_klog.client.transport.backoff import Backoff
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from tests.support.client.evented_world import DEFAULTS, EventedWorld, metadata_request

# --- time ----------------------------------------------------------------------------------------


def test_a_late_reply_ends_the_connection_and_all_that_is_in_flight() -> None:
    world = EventedWorld(replace(DEFAULTS, max_in_flight=2))
    broker = world.ready()
    world.request_metadata("a", timeout_ms=900)
    world.request_metadata("b", timeout_ms=500)
    world.request_metadata("c", timeout_ms=900)
    world.turns()
    world.turns(after_ms=499)
    assert world.answers == []
    world.turns(after_ms=1)
    assert world.error() == "10.0.0.7:9092 did not answer METADATA in time"
    assert world.taken() == [(name, "RequestTimedOut") for name in "abc"]
    assert broker.stream.is_closed
    world.request_metadata("d")
    world.turns(after_ms=99)
    assert len(world.network.opened) == 1, "a peer that is too slow is not asked at once"
    world.turns(after_ms=1)
    assert len(world.network.opened) == 2


def test_a_later_deadline_holds_after_an_earlier_one_has_passed() -> None:
    world = EventedWorld()
    world.ready()
    world.request_metadata("a", timeout_ms=5_000)
    world.turns()
    world.turns(after_ms=4_999)
    assert world.answers == []
    world.turns(after_ms=1)
    assert world.taken() == [("a", "RequestTimedOut")]


def test_time_runs_while_a_request_waits_for_the_connection() -> None:
    world = EventedWorld()
    world.network.refuses = ConnectionRefusedError(111, "Connection refused")
    world.request_metadata("a")
    world.turns()
    world.taken()
    world.request_metadata("b", timeout_ms=50)
    world.turns(after_ms=50)
    assert world.error() == (
        "METADATA could not be sent to 10.0.0.7:9092 in time: "
        "could not connect to 10.0.0.7:9092: Connection refused"
    )
    assert len(world.network.asked) == 1


def test_a_reply_that_came_while_the_loop_was_busy_is_in_time() -> None:
    world = EventedWorld()
    broker = world.ready()
    world.request_metadata("a", timeout_ms=500)
    world.turns()
    [asked] = broker.requests()
    broker.reply_to(asked)
    world.turns(after_ms=10_000)
    assert world.taken() == [("a", "a")]
    assert not broker.stream.is_closed


def test_a_quiet_connection_needs_no_timer() -> None:
    world = EventedWorld()
    world.ready()
    world.turns(after_ms=60_000)
    assert world.loop.next_wake_ms() is None


# --- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_lost_connection_fails_all_in_order_and_is_opened_again(how: str) -> None:
    world = EventedWorld(replace(DEFAULTS, max_in_flight=2))
    broker = world.ready()
    for name in "abc":
        world.request_metadata(name)
    world.turns()
    broker.stream.is_at_end = how == "closed"
    broker.stream.is_broken = how == "reset"
    world.turns()
    assert world.taken() == [(name, "ConnectionFailed") for name in "abc"]
    assert broker.stream.is_closed
    world.turns(after_ms=1_000)
    assert len(world.network.opened) == 1, "nothing asks for another one yet"
    world.ready()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x00\x0f\x42\x41", "a reply says that it has 1000001 bytes"),
        (b"\x00\x00\x00\x02ab", "a reply says that it has 2 bytes"),
        (b"HTTP/1.1 400 Bad Request", "is the address a listener of Kafka's protocol"),
        (b"\x00\x00\x00\x04\x00\x00\x03\xe7", "answered request 999; expected"),
    ],
)
def test_hostile_bytes_end_the_connection(data: bytes, text: str) -> None:
    world = EventedWorld(replace(DEFAULTS, max_response_bytes=1_000_000))
    broker = world.ready()
    world.request_metadata("a")
    world.request_metadata("b")
    world.turns()
    broker.stream.inbox += data
    world.turns()
    assert text in world.error()
    assert world.taken() == [("a", "ReplyUnreadable"), ("b", "ReplyUnreadable")]
    assert broker.stream.is_closed


def test_a_reply_before_hostile_bytes_still_counts() -> None:
    world = EventedWorld()
    broker = world.ready()
    world.request_metadata("a")
    world.request_metadata("b")
    world.turns()
    broker.reply_to(broker.requests()[0])
    broker.stream.inbox += b"\x00\x00\x00\x04\x00\x00\x03\xe7"
    world.turns()
    assert world.taken() == [("a", "a"), ("b", "ReplyUnreadable")]


def test_a_reply_that_cannot_be_read_names_its_request() -> None:
    world = EventedWorld()
    broker = world.ready()
    world.request_metadata("a")
    world.turns()
    [asked] = broker.requests()
    broker.stream.inbox += b"\x00\x00\x00\x05" + asked.correlation_id.to_bytes(4, "big") + b"\xff"
    world.turns()
    assert "the reply of 10.0.0.7:9092 to METADATA v12 is unreadable" in world.error()


def test_a_reply_that_nobody_asked_for_ends_an_idle_connection() -> None:
    world = EventedWorld()
    broker = world.ready()
    broker.stream.inbox += b"\x00\x00\x00\x04\x00\x00\x00\x00"
    world.turns()
    assert broker.stream.is_closed
    assert world.answers == []


@pytest.mark.parametrize("when", ["not asked yet", "connecting", "negotiating", "in flight"])
def test_close_fails_the_rest_before_it_returns_and_once(when: str) -> None:
    world = EventedWorld()
    world.network.is_slow = when == "connecting"
    if when == "in flight":
        world.ready()
    world.request_metadata("a", timeout_ms=900)
    world.request_metadata("b", timeout_ms=500)
    if when != "not asked yet":
        world.turns()
    world.connection.close("the broker stops")
    assert world.error() == "connection to 10.0.0.7:9092: the broker stops"
    assert world.taken() == [("a", "ConnectionFailed"), ("b", "ConnectionFailed")]
    world.connection.close()
    world.turns()
    assert world.loop.next_wake_ms() is None
    world.turns(after_ms=60_000)
    assert world.answers == []
    assert all(stream.is_closed for stream in world.network.opened)
    assert world.network.poller.interest == {}


def test_a_request_after_close_is_answered_too() -> None:
    world = EventedWorld()
    world.connection.close()
    assert world.connection.is_closed
    world.request_metadata("a")
    assert world.answers == [], "never within send"
    world.turns()
    assert world.taken() == [("a", "ConnectionFailed")]
    assert world.network.asked == []


# --- callbacks that call back --------------------------------------------------------------------


def test_a_callback_may_send_the_next_request() -> None:
    world = EventedWorld()
    broker = world.ready()

    def go_on(reply: MetadataResponse | None, error: KlogError | None) -> None:
        world.note("a", reply, error)
        world.request_metadata("b")
        assert world.connection.unanswered == 1

    world.connection.send(MetadataResponse, lambda _: metadata_request("a"), go_on, 1_000)
    world.turns()
    [asked] = broker.requests()
    broker.reply_to(asked)
    world.turns(1)
    assert world.taken() == [("a", "a")]
    assert broker.topics() == ["b"], "sent in the turn of the reply"


def test_a_callback_may_close_and_the_rest_is_answered_after_it() -> None:
    world = EventedWorld(replace(DEFAULTS, max_in_flight=2))
    broker = world.ready()

    def close(reply: MetadataResponse | None, error: KlogError | None) -> None:
        world.note("a", reply, error)
        world.connection.close()
        world.note("still a", reply, error)

    world.connection.send(MetadataResponse, lambda _: metadata_request("a"), close, 1_000)
    world.request_metadata("b")
    world.request_metadata("c")
    world.turns()
    broker.reply_to(broker.requests()[0])
    world.turns(1)
    failed = "ConnectionFailed"
    assert world.taken() == [("a", "a"), ("still a", "a"), ("b", failed), ("c", failed)]
    assert broker.stream.is_closed


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_callback_that_sends_again_at_once_does_not_hold_the_loop(is_closed: bool) -> None:
    world = EventedWorld(replace(DEFAULTS, reconnect=Backoff(0, 0)))
    world.network.refuses = ConnectionRefusedError(111, "Connection refused")
    errors: list[KlogError | None] = []

    def again(_: MetadataResponse | None, error: KlogError | None) -> None:
        errors.append(error)
        send()

    def send() -> None:
        world.connection.send(MetadataResponse, lambda _: metadata_request("a"), again, 1_000)

    send()
    if is_closed:
        world.connection.close()
    before = len(errors)
    world.turns(1)
    assert len(errors) <= before + 1
    world.turns(10)
    assert before < len(errors) <= before + 11
    assert all(isinstance(error, ConnectionFailed) for error in errors)


def test_callbacks_do_not_run_within_one_another() -> None:
    world = EventedWorld()
    world.ready()
    depth, deepest, answered = 0, 0, 0

    def close(*_: object) -> None:
        nonlocal depth, deepest, answered
        depth += 1
        deepest = max(deepest, depth)
        answered += 1
        world.connection.close()
        depth -= 1

    for _ in range(2_000):
        world.connection.send(MetadataResponse, lambda _: metadata_request("a"), close, 1_000)
    world.connection.close()
    assert (answered, deepest) == (2_000, 1)
