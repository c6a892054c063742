"""The dispatcher with faulty handlers: every request gets a response, and the server goes on."""

import logging
from typing import Any

import pytest

from klog_broker.dispatch.access import NO_ACCESS, on_group
from klog_broker.dispatch.api_handler import (
    MAX_REQUEST_ELEMENTS,
    ApiHandler,
    BrokerApi,
    bind,
    top_level_error,
)
from klog_broker.dispatch.cached_requests import CACHED_REQUEST_BYTES
from klog_broker.dispatch.dispatcher import UNCOUNTED_BYTES, Dispatcher
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.dispatch.request_runtime import RequestRuntime
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import Slices
from klog_broker.security.acls import AclOperation, AclResourceType
from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyspark_klog.protocol.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.keys import ApiKey
from tests.support.runtime.fake_network import ScriptedPoller
from tests.support.runtime.manual_clock import ManualClock
from tests.support.security.rules import Rules


class Slot:
    """A reply slot that records how it was completed, skipped or closed."""

    def __init__(self) -> None:
        self.is_open = True
        self.parts: list[Any] | None = None
        self.closed = ""
        self.skipped = False

    @property
    def is_filled(self) -> bool:
        return self.parts is not None or bool(self.closed) or self.skipped

    def complete(self, parts: list[Any]) -> None:
        assert not self.is_filled
        self.parts = parts

    def skip(self) -> None:
        self.skipped = True

    def close(self, reason: str) -> None:
        self.closed = reason

    def when_closed(self, callback: object) -> None:
        pass

    def hold(self) -> bool:
        return False

    @property
    def error_code(self) -> int:
        assert self.parts is not None
        frame = b"".join(self.parts)[4:]
        response: Any = decode_response(frame, ApiKey.HEARTBEAT, 2)
        code: int = response.error_code
        return code


class Connection:
    client_address = "10.0.0.1"
    connection_id = "c"
    listener = "PLAINTEXT"
    principal = KafkaPrincipal("User", "alice")

    def __init__(self) -> None:
        self.cached_requests: dict[int, Any] = {}
        self.rules_version = 0

    def forget_cached_requests(self) -> None:
        self.cached_requests.clear()


class Services(RequestRuntime):
    """The dispatcher's services, and the loop that the slices run in."""

    def __init__(self) -> None:
        self.loop = Loop(ManualClock(0), ScriptedPoller())
        super().__init__(Slices(self.loop))


def is_inside(listener: str) -> bool:
    return listener == "INSIDE"


def handler(
    api_key: ApiKey, handle: Any, prepare: Any = None, **options: Any
) -> tuple[ApiHandler, ...]:
    """One row, of an API without services."""

    def handled(_: object, request: Any, context: RequestContext) -> Any:
        return handle(request, context)

    def cache_bound(_: object, frame: bytes, request: Any, context: RequestContext) -> Any:
        return prepare(frame, request, context)

    options["cache_request"] = None if prepare is None else cache_bound
    options.setdefault("access", NO_ACCESS)
    api = BrokerApi(api_key, handled, top_level_error(api_key), **options)
    return bind([api], None)


def served(handle: Any, **options: Any) -> tuple[Dispatcher, Services]:
    services = Services()
    return Dispatcher(services, handler(ApiKey.HEARTBEAT, handle, **options), is_inside), services


def send_heartbeat(dispatcher: Dispatcher, version: int = 2) -> Slot:
    slot = Slot()
    header = RequestHeader(ApiKey.HEARTBEAT, version, 5, "me")
    frame = memoryview(encode_request(header, HeartbeatRequest(group_id="g")))[4:]
    dispatcher.handle_frame(frame, slot, Connection())
    return slot


def test_a_handler_sees_the_request_and_its_circumstances() -> None:
    seen: list[tuple[Any, RequestContext]] = []

    def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        seen.append((request, context))
        return HeartbeatResponse(error_code=7)

    dispatcher, _ = served(handle)
    assert send_heartbeat(dispatcher).error_code == 7
    ((request, context),) = seen
    assert request.group_id == "g"
    assert (context.api_version, context.client_id, context.listener) == (2, "me", "PLAINTEXT")
    assert context.principal == KafkaPrincipal("User", "alice")


def test_a_decision_is_answered_with_its_code() -> None:
    def handle(*_: object) -> None:
        raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    dispatcher, services = served(handle)
    assert send_heartbeat(dispatcher).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert services.bugs.total == 0


def test_a_bug_is_answered_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def handle(*_: object) -> None:
        raise ZeroDivisionError

    dispatcher, services = served(handle)
    with caplog.at_level(logging.ERROR):
        codes = [send_heartbeat(dispatcher).error_code for _ in range(5)]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 5
    assert services.bugs.counts == {"HEARTBEAT": 5}
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_a_bug_after_the_answer_spoils_nothing() -> None:
    def handle(_: object, context: RequestContext) -> None:
        context.response_sink.send(HeartbeatResponse())
        raise ZeroDivisionError

    dispatcher, services = served(handle)
    assert send_heartbeat(dispatcher).error_code == 0
    assert services.bugs.total == 1


def test_an_answer_that_cannot_be_encoded_closes_the_connection() -> None:
    dispatcher, services = served(lambda *_: HeartbeatResponse(error_code=1 << 40))
    slot = send_heartbeat(dispatcher)
    assert slot.parts is None
    assert "cannot be encoded" in slot.closed
    assert services.bugs.total == 1


def test_a_response_without_a_receiver_is_not_encoded() -> None:
    def handle(_: object, context: RequestContext) -> None:
        slot.is_open = False
        context.response_sink.send(HeartbeatResponse(error_code=1 << 40))

    dispatcher, services = served(handle)
    slot = Slot()
    header = RequestHeader(ApiKey.HEARTBEAT, 2, 5, "me")
    frame = memoryview(encode_request(header, HeartbeatRequest()))[4:]
    dispatcher.handle_frame(frame, slot, Connection())
    assert slot.parts == []
    assert services.bugs.total == 0


def test_versions_outside_of_what_is_served_close_the_connection() -> None:
    dispatcher, _ = served(lambda *_: HeartbeatResponse(), min_version=1, max_version=2)
    assert "served from 1 to 2, not as 0" in send_heartbeat(dispatcher, 0).closed
    assert send_heartbeat(dispatcher, 1).closed == ""
    assert "not as 3" in send_heartbeat(dispatcher, 3).closed


def test_an_api_is_registered_once_and_within_its_versions() -> None:
    heartbeat = handler(ApiKey.HEARTBEAT, lambda *_: None)
    with pytest.raises(ValueError, match="already"):
        Dispatcher(Services(), heartbeat + heartbeat, is_inside)
    too_new = handler(ApiKey.LIST_GROUPS, lambda *_: None, max_version=99)
    with pytest.raises(ValueError, match="cannot be served"):
        Dispatcher(Services(), too_new, is_inside)


@pytest.mark.parametrize("steps_before", [0, 100])
def test_an_answer_in_steps_is_as_good_as_one_at_once(steps_before: int) -> None:
    def handle(*_: object) -> ResponseSteps:
        for _ in range(steps_before):
            yield 1
        return HeartbeatResponse(error_code=9)

    dispatcher, services = served(handle)
    assert send_heartbeat(dispatcher).error_code == 9
    assert services.bugs.total == 0


@pytest.mark.parametrize("steps_before", [0, 100])
def test_what_goes_wrong_in_a_step_is_answered(steps_before: int) -> None:
    def handle(*_: object) -> ResponseSteps:
        for _ in range(steps_before):
            yield 1
        raise failure

    dispatcher, services = served(handle)
    failure: Exception = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert send_heartbeat(dispatcher).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert services.bugs.total == 0
    failure = ZeroDivisionError()
    assert send_heartbeat(dispatcher).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert services.bugs.counts == {"HEARTBEAT": 1}


@pytest.mark.parametrize("steps_before", [0, 100])
def test_an_answer_in_steps_that_cannot_be_encoded_closes(steps_before: int) -> None:
    def handle(*_: object) -> ResponseSteps:
        for _ in range(steps_before):
            yield 1
        return HeartbeatResponse(error_code=1 << 40)

    dispatcher, services = served(handle)
    slot = send_heartbeat(dispatcher)
    assert slot.parts is None
    assert "cannot be encoded" in slot.closed
    assert services.bugs.total == 1


# --- prepared requests ---------------------------------------------------------------------------
class Again:
    """Serves the frame that it was made of; ``fails`` raises instead, ``fails_behind`` raises
    behind the answer."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.count = 0
        self.fails = False
        self.fails_behind = False

    def serve(self, frame: memoryview, slot: Slot) -> bool:
        if self.fails:
            raise ZeroDivisionError
        if frame != self.frame:
            return False
        self.count += 1
        slot.complete([b"again"])
        if self.fails_behind:
            raise ZeroDivisionError
        return True


def prepared_dispatcher() -> tuple[Dispatcher, Services, list[Again], list[str]]:
    made: list[Again] = []
    handled: list[str] = []

    def handle(request: HeartbeatRequest, _: RequestContext) -> HeartbeatResponse:
        handled.append(request.group_id)
        return HeartbeatResponse()

    def prepare(frame: bytes, _: HeartbeatRequest, __: RequestContext) -> Again:
        made.append(Again(frame))
        return made[-1]

    dispatcher, services = served(handle, prepare=prepare)
    return dispatcher, services, made, handled


def send(dispatcher: Dispatcher, connection: Connection, group_id: str) -> Slot:
    slot = Slot()
    header = RequestHeader(ApiKey.HEARTBEAT, 2, 5, "me")
    frame = memoryview(encode_request(header, HeartbeatRequest(group_id=group_id)))[4:]
    dispatcher.handle_frame(frame, slot, connection)
    return slot


def test_a_request_like_the_last_one_of_its_connection_is_served_without_the_handler() -> None:
    dispatcher, _, made, handled = prepared_dispatcher()
    one, other = Connection(), Connection()
    assert send(dispatcher, one, "g").error_code == 0
    assert send(dispatcher, one, "g").parts == [b"again"]
    assert send(dispatcher, other, "g").error_code == 0
    assert send(dispatcher, one, "h").error_code == 0
    assert send(dispatcher, one, "g").error_code == 0, "the last one counts"
    assert handled == ["g", "g", "h", "g"]
    assert made[0].count == 1


def test_a_cached_request_can_be_forgotten() -> None:
    dispatcher, _, _, handled = prepared_dispatcher()
    connection = Connection()
    send(dispatcher, connection, "g")
    connection.forget_cached_requests()
    assert send(dispatcher, connection, "g").error_code == 0
    assert handled == ["g", "g"]


def test_a_long_request_is_not_cached() -> None:
    dispatcher, _, made, _ = prepared_dispatcher()
    send(dispatcher, Connection(), "g" * CACHED_REQUEST_BYTES)
    assert not made


def test_a_bug_of_a_cached_request_leaves_the_request_to_the_handler() -> None:
    dispatcher, services, made, handled = prepared_dispatcher()
    connection = Connection()
    send(dispatcher, connection, "g")
    made[0].fails = True
    assert send(dispatcher, connection, "g").error_code == 0
    assert send(dispatcher, connection, "g").parts == [b"again"]
    assert handled == ["g", "g"]
    assert services.bugs.total == 1


def test_a_bug_after_the_response_of_a_cached_request_does_not_answer_twice() -> None:
    dispatcher, services, made, handled = prepared_dispatcher()
    connection = Connection()
    send(dispatcher, connection, "g")
    made[0].fails_behind = True
    assert send(dispatcher, connection, "g").parts == [b"again"]
    assert handled == ["g"]
    assert services.bugs.total == 1
    assert send(dispatcher, connection, "g").error_code == 0, "what failed is not asked again"


def send_large(services: Services, handled: list[object], *, cut_bytes: int = 0) -> Slot:
    """Send a request of more elements than clients may send."""
    row = handler(
        ApiKey.STOP_REPLICA,
        lambda request, _: handled.append(request),
        max_elements=2 * MAX_REQUEST_ELEMENTS,
    )
    dispatcher = Dispatcher(services, row, is_inside)
    states = [StopReplicaPartitionState()] * (MAX_REQUEST_ELEMENTS + 1)
    request = StopReplicaRequest(
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)]
    )
    frame = memoryview(encode_request(RequestHeader(5, 4, 1, "me"), request))[4:]
    slot = Slot()
    dispatcher.handle_frame(frame[: len(frame) - cut_bytes], slot, Connection())
    return slot


@pytest.mark.parametrize(("listener", "is_taken"), [("INSIDE", True), ("OUTSIDE", False)])
def test_only_brokers_send_requests_of_more_elements_than_others_may(
    listener: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[object] = []
    services = Services()
    monkeypatch.setattr(Connection, "listener", listener)
    slot = send_large(services, handled)
    for _ in range(20):
        services.loop.run_turn(0)
    assert (len(handled) == 1, "elements" in slot.closed) == (is_taken, not is_taken)


def test_a_large_request_of_a_broker_is_decoded_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[object] = []
    services = Services()
    monkeypatch.setattr(Connection, "listener", "INSIDE")
    send_large(services, handled)
    for _ in range(6):
        services.loop.run_turn(0)
        assert not handled
    for _ in range(14):
        services.loop.run_turn(0)
    (request,) = handled
    assert isinstance(request, StopReplicaRequest)
    assert len(request.topic_states[0].partition_states) == MAX_REQUEST_ELEMENTS + 1


def test_a_large_request_of_a_broker_that_ends_too_early_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handled: list[object] = []
    services = Services()
    monkeypatch.setattr(Connection, "listener", "INSIDE")
    slot = send_large(services, handled, cut_bytes=3)
    for _ in range(20):
        services.loop.run_turn(0)
    assert "StopReplicaRequest v4" in slot.closed
    assert services.counters == {"requests-malformed": 1}
    assert (handled, services.bugs.total) == ([], 0)


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_request_that_takes_long_to_decode_is_handled_in_the_next_turn(at_once: int) -> None:
    handled: list[object] = []

    def handle(request: HeartbeatRequest, _: RequestContext) -> HeartbeatResponse:
        handled.append(request)
        return HeartbeatResponse()

    dispatcher, services = served(handle)
    services.loop.run_turn(0)
    large = "g" * UNCOUNTED_BYTES
    slots = [send(dispatcher, Connection(), large) for _ in range(at_once)]
    assert not handled
    services.loop.run_turn(0)
    assert [slot.error_code for slot in slots] == [0] * at_once


def test_a_denied_request_does_not_reach_its_handler() -> None:
    rules = Rules()
    seen: list[HeartbeatRequest] = []

    def handle(request: HeartbeatRequest, _: RequestContext) -> HeartbeatResponse:
        seen.append(request)
        return HeartbeatResponse()

    handlers = handler(ApiKey.HEARTBEAT, handle, access=(on_group(AclOperation.READ),))
    dispatcher = Dispatcher(Services(), handlers, is_inside, rules)
    rules.deny(AclOperation.READ, AclResourceType.GROUP, "other")
    assert send_heartbeat(dispatcher).error_code == ErrorCode.NONE
    rules.deny(AclOperation.READ, AclResourceType.GROUP, "g")
    assert send_heartbeat(dispatcher).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert len(seen) == 1
