"""Applies the active faults to requests, before and after their handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from klog_broker.faults.fault import APIS, BROKER_APIS, Action, Fault, Slot
from klog_broker.faults.intercepted_response import InterceptedResponse, whole_frame
from klog_broker.faults.topic_errors import (
    NameOf,
    fetches,
    mark,
    merge,
    only_reads,
    split,
)
from klog_broker.network.connection import Connection
from klog_broker.network.server import Server
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.fetch import FetchRequest
from pyspark_klog.protocol.codec import decode_message
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response_parts,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

_NO_SESSION = -1
"""The session epoch of a Fetch request that lists all its partitions and begins no session."""


class Interception:
    """The active faults of one broker. Loop thread only.

    While a fault is active, every request passes ``_handle_frame`` first, and no produce plan
    (compiled code for the Produce requests of many connections) takes requests.
    """

    def __init__(
        self,
        server: Server,
        loop: Loop,
        name_of: NameOf,
        is_brokers_client: Callable[[str], bool],
    ) -> None:
        """``is_brokers_client`` returns whether another broker of the cluster uses a client id. A
        fault affects requests of other brokers only if clients never send the API."""
        self._server = server
        self._loop = loop
        self._name_of = name_of
        self._is_brokers_client = is_brokers_client
        self._serve = server.handle_frame
        self._faults: dict[int, Fault] = {}

    def add(self, number: int, fault: Fault) -> None:
        """Activate a fault, which the test knows by ``number``."""
        self._faults[number] = fault
        self._server.intercept_requests(self._handle_frame)

    def end(self, number: int) -> int:
        """End a fault; return how many requests it has affected.

        The end of a black hole closes the connections whose requests it has swallowed.
        """
        fault = self._faults.pop(number, None)
        if fault is None:
            return 0
        for slot in fault.swallowed:
            if slot.is_open:
                slot.close("the black hole of a test has ended")
        if not self._faults:
            self._server.end_interception()
        return fault.fired

    def end_all(self) -> None:
        """End all faults, as at the end of the test's process."""
        for number in list(self._faults):
            self.end(number)

    def fired(self, number: int) -> int:
        """Return how many requests an active fault has affected."""
        return self._faults[number].fired

    # --- one request -----------------------------------------------------------------------------
    def _handle_frame(self, frame: memoryview, slot: Slot, connection: Connection) -> bool:
        connection.forget_cached_requests()
        try:
            header, _ = decode_request_header(frame)
        except MalformedRequest:
            return self._serve(frame, slot, connection)
        if hole := self._find(header, Action.BLACKHOLE):
            hole.use()
            hole.swallowed.append(slot)
            slot.hold()
        elif delay := self._find(header, Action.DELAY):
            delay.use()
            slot.hold()
            # The frame's memory is reused in the next turn, and handlers may write into it.
            own = memoryview(bytearray(frame))
            late = partial(self._handle_late, header, own, slot, connection)
            self._loop.call_later(delay.delay_ms, late)
        else:
            self._handle_on_time(header, frame, slot, connection)
        return False

    def _handle_late(
        self, header: RequestHeader, frame: memoryview, slot: Slot, connection: Connection
    ) -> None:
        if slot.is_open:
            self._handle_on_time(header, frame, slot, connection)

    def _handle_on_time(
        self, header: RequestHeader, frame: memoryview, slot: Slot, connection: Connection
    ) -> None:
        for fault in self._faults_of(header):
            if fault.action is Action.DISCONNECT_BEFORE:
                fault.use()
                slot.close("a fault of a test disconnects before the request is executed")
                return
            if fault.action is Action.DISCONNECT_AFTER:
                fault.use()
                self._serve(frame, _without_response(slot), connection)
                return
            if fault.action is Action.ANSWER and self._answer(
                fault, header, frame, slot, connection
            ):
                return
        self._serve(frame, slot, connection)

    def _find(self, header: RequestHeader, action: Action) -> Fault | None:
        return next((each for each in self._faults_of(header) if each.action is action), None)

    def _faults_of(self, header: RequestHeader) -> Iterator[Fault]:
        client_id = header.client_id or ""
        if header.api_key in BROKER_APIS or not self._is_brokers_client(client_id):
            for fault in list(self._faults.values()):
                if fault.concerns(header.api_key, client_id):
                    yield fault

    # --- answers with an error -------------------------------------------------------------------
    def _answer(
        self,
        fault: Fault,
        header: RequestHeader,
        frame: memoryview,
        slot: Slot,
        connection: Connection,
    ) -> bool:
        """Answer a request with the fault's error; return False, without any effect, if the fault
        does not concern the request."""
        request = _decode(header, frame)
        if request is None:
            return False
        if header.api_key == ApiKey.METADATA or (
            fault.topic is not None and only_reads(header.api_key)
        ):
            return self._answer_read(fault, header, request, slot, connection)
        if fault.topic is None:
            fault.use()
            _send(header, slot, _error_response(request, fault.code))
            return True
        chosen, rest = split(request, fault.topic, fault.partition, self._name_of)
        if chosen is None:
            return False
        fault.use()
        errors = _error_response(chosen, fault.code)
        if rest is None or errors is None:
            _send(header, slot, errors)
            return True

        def add_errors(parts: list[Any]) -> None:
            response = decode_response(whole_frame(parts), header.api_key, header.api_version)
            merge(response, errors)
            _send(header, slot, response)

        self._serve_changed(header, rest, slot, connection, add_errors)
        return True

    def _answer_read(
        self,
        fault: Fault,
        header: RequestHeader,
        request: Request,
        slot: Slot,
        connection: Connection,
    ) -> bool:
        """Carry out a request that only reads, and write the error into its response."""
        if isinstance(request, FetchRequest):
            assert fault.topic is not None
            if request.session_epoch > 0:
                # The request of a fetch session names only the partitions that have changed. This
                # error makes the client begin again and name all partitions.
                _send(header, slot, _error_response(request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
                return True
            request.session_id, request.session_epoch = 0, _NO_SESSION
            if fetches(request, fault.topic, fault.partition, self._name_of):
                # An error is answered at once, even if the other partitions have no records yet.
                request.max_wait_ms = 0

        def write_errors(parts: list[Any]) -> None:
            response = decode_response(whole_frame(parts), header.api_key, header.api_version)
            if fault.times != 0 and mark(
                response, fault.topic, fault.partition, fault.code, self._name_of
            ):
                fault.use()
            _send(header, slot, response)

        self._serve_changed(header, request, slot, connection, write_errors)
        return True

    def _serve_changed(
        self,
        header: RequestHeader,
        request: Request,
        slot: Slot,
        connection: Connection,
        on_complete: Callable[[list[Any]], None],
    ) -> None:
        frame = memoryview(bytearray(encode_request(header, request)))[4:]
        intercepted: Any = InterceptedResponse(slot, on_complete, slot.skip)
        self._serve(frame, intercepted, connection)
        connection.forget_cached_requests()


def _without_response(slot: Slot) -> Any:
    def close(_: object = None) -> None:
        slot.close("a fault of a test disconnects after the request was executed")

    return InterceptedResponse(slot, close, close)


def _decode(header: RequestHeader, frame: memoryview) -> Request | None:
    """Decode a request; return None if its API or version is not served, or if it is malformed: the
    dispatcher then refuses it."""
    api = APIS.get(header.api_key)
    if api is None or not api.served.min_version <= header.api_version <= api.served.max_version:
        return None
    _, position = decode_request_header(frame)
    try:
        request, _ = decode_message(
            registry.request_class(header.api_key), header.api_version, frame, position
        )
    except MalformedRequest:
        return None
    return request


def _error_response(request: Request, code: ErrorCode) -> Response | None:
    return APIS[request.api_key].error_response(request, code)


def _send(header: RequestHeader, slot: Slot, response: Response | None) -> None:
    """Answer with ``response``; close the connection if it is None, as after an error of a Produce
    request with acks=0."""
    if response is None:
        slot.close("a fault of a test: the request has no error response")
    elif slot.is_open:
        slot.complete(encode_response_parts(header.correlation_id, response, header.api_version))
