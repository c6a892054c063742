"""Serves a connection's repeated fetches without decoding them again.

A client's fetches often differ only in correlation id, session epoch and fetch offsets. For the
last Fetch that it has decoded of a connection, the broker caches (dispatch/cached_requests.py) the
bytes around these fields, the decoded request, its partitions with their leaders, and the
FetchReader. If the next Fetch has the same bytes around these fields, only the fields are read and
put into the cached request. A connection's next Fetch begins when its last one has been answered,
so no other fetch uses the cached request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from klog_broker.dispatch.encoded_response import EncodedResponse
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ResponseSlot
from klog_broker.fetch.changing_fields import find_changing_fields
from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.fetch.reader import FetchReader, read_access, requested_partitions
from klog_broker.fetch.response_parts import make_response, pack_response
from klog_broker.fetch.scopes import SessionFetch, WholeFetch, is_enough, scope_of
from klog_broker.fetch.services import FetchServices
from pyspark_klog.errors import BrokerError
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest
from pyspark_klog.protocol.headers import RequestHeader, decode_request_header

MAX_FRAME_BYTES = 4096
"""The longest frame that is cached: a request for about a hundred partitions."""

ContinueFetch = Callable[
    [
        FetchServices,
        FetchRequest,
        RequestContext,
        WholeFetch | SessionFetch,
        FetchReader,
        list[ReadPartition],
    ],
    None,
]
"""Continues a fetch that could not be answered after its first read: the read found too few bytes,
or the partitions in the last argument are cold (a look-up would block on the disk). Sends the
response through the RequestContext, usually later."""


class CachedFetch:
    """A Fetch that its connection may repeat; implements ``CachedRequest``."""

    __slots__ = (
        "__weakref__",
        "_client_address",
        "_connection_id",
        "_continue_fetch",
        "_frame",
        "_has_epoch",
        "_header",
        "_layout",
        "_listener",
        "_partitions",
        "_pieces",
        "_principal",
        "_reader",
        "_request",
        "_rows",
        "_services",
        "_size_bytes",
        "_version",
    )

    def __init__(
        self,
        services: FetchServices,
        frame: bytes,
        request: FetchRequest,
        context: RequestContext,
        continue_fetch: ContinueFetch,
    ) -> None:
        # Do not store the context itself: its response sink would keep the sent response in memory.
        self._header = context.header
        self._version = context.api_version
        self._client_address = context.client_address
        self._connection_id = context.connection_id
        self._listener = context.listener
        self._principal = context.principal
        self._services = services
        self._continue_fetch = continue_fetch
        self._request = request
        self._frame: bytes | None = frame
        """The first request's frame, until a second frame of the same size comes. Only then does
        this class search the frame for its changing fields, because requests that are not repeated
        usually differ in size."""
        self._size_bytes = len(frame)
        self._layout: Struct | None = None
        """The layout of the frame: alternately bytes that stay the same, and numbers that may
        change. The numbers are the correlation id, the session epoch (in versions that have it) and
        the fetch offset of each partition."""
        self._pieces: tuple[bytes, ...] = ()
        self._has_epoch = False
        self._rows: Sequence[FetchPartition] = ()
        """The partitions of the request, in the order of the fetch offsets."""
        self._partitions: Sequence[ReadPartition] | None = None
        self._reader: FetchReader | None = None

    def serve(self, frame: memoryview, slot: ResponseSlot) -> bool:
        if len(frame) != self._size_bytes:
            return False
        correlation_id = self._read_changes(frame)
        if correlation_id is None:
            return False
        request, version, services = self._request, self._version, self._services
        try:
            scope = scope_of(request, version, services, self._named)
        except BrokerError:
            # The fetch session cannot be used (its id or epoch is wrong, for example): the handler
            # answers with the error.
            return False
        reader = self._reader
        if reader is None:
            may_read = read_access(
                services, request, version, self._principal, self._client_address
            )
            reader = FetchReader(request, version, services, self._listener, may_read)
            self._reader = reader
        scope.renew()
        cold = reader.read(scope.partitions)
        if cold or not (request.max_wait_ms <= 0 or is_enough(scope, request.min_bytes)):
            if reader.follower is not None and services.purgatory.check_now():
                # Delayed operations have completed, such as acks=all requests that have waited for
                # this fetch: send their responses before the fetch waits.
                services.loop.send_now()
                if any(each.has_moved for each in scope.partitions):
                    # The completion of those operations may have appended more records, at the end
                    # of a transaction, for example: read again.
                    scope.renew()
                    cold = reader.read(scope.partitions)
            context = self._context(correlation_id, slot)
            self._continue_fetch(services, request, context, scope, reader, cold)
            return True
        session_id, included, code = scope.answer()
        parts = pack_response(correlation_id, version, session_id, code, included)
        if parts is None:
            answer = make_response(session_id, code, included)
            self._context(correlation_id, slot).response_sink.send(answer)
        else:
            slot.complete(parts)
        for each in included:
            each.count_bytes_out()
        for each in scope.partitions:
            each.release_records()
        return True

    def _context(self, correlation_id: int, slot: ResponseSlot) -> RequestContext:
        cached_header = self._header
        header = RequestHeader(
            cached_header.api_key,
            cached_header.api_version,
            correlation_id,
            cached_header.client_id,
            cached_header.unknown_tagged_fields,
        )
        return RequestContext(
            header,
            self._client_address,
            self._connection_id,
            self._listener,
            self._principal,
            EncodedResponse(slot, header, self._services.requests),
        )

    def release_leaders(self) -> None:
        """Forget the partitions with their leaders: a leadership has ended, and the files of its
        log may be deleted (see LeaderHolders)."""
        self._partitions = None

    def _read_changes(self, frame: memoryview) -> int | None:
        """Put the changing numbers of ``frame`` (session epoch and fetch offsets) into the cached
        request and return the correlation id; return None if the frame does not repeat the cached
        request, or if the changing fields of this request cannot be found."""
        if self._frame is not None:
            self._find_holes(self._frame)
        layout = self._layout
        if layout is None:
            return None
        values = layout.unpack(frame)
        if values[::2] != self._pieces:
            return None
        numbers: tuple[int, ...] = values[1::2]
        at = 1
        if self._has_epoch:
            self._request.session_epoch = numbers[1]
            at = 2
        for partition in self._rows:
            partition.fetch_offset = numbers[at]
            at += 1
        return numbers[0]

    def _find_holes(self, frame: bytes) -> None:
        self._frame = None
        header, position = decode_request_header(frame)
        holes = find_changing_fields(frame, header.api_version, position)
        if holes is None:
            return
        self._has_epoch = holes.epoch_at > 0
        self._rows = [each for topic in self._request.topics for each in topic.partitions]
        self._pieces = tuple(piece for _, piece in holes.pieces(frame))
        numbers = ("ii" if self._has_epoch else "i") + len(holes.offsets_at) * "q"
        between = (
            f"{number}{len(piece)}s"
            for number, piece in zip(numbers, self._pieces[1:], strict=True)
        )
        self._layout = Struct(f">{len(self._pieces[0])}s{''.join(between)}")

    def _named(
        self, request: FetchRequest, version: int, services: FetchServices
    ) -> Sequence[ReadPartition]:
        """Return the request's partitions. All repetitions of the request share these objects,
        which refer to the partitions' leaders after the first read, so that no leader is looked up
        again until a leadership ends."""
        if self._partitions is None:
            self._partitions = requested_partitions(request, version, services)
            services.leader_holders.add(self)
        for each in self._partitions:
            each.is_noted = False
        return self._partitions
