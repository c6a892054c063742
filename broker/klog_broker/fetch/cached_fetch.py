"""Fetches that come again and again: a consumer's differ in correlation id, session epoch and
offsets alone.

Of a connection's last Fetch is kept (cached_requests.py): the request's bytes around these fields,
the request as it was decoded, and what was found for it (its partitions, who leads them, the
reader). The next one with the same bytes is not decoded: the fields are read where they lie, and
put into the request that is kept. A connection's next Fetch is begun only when its last one is
answered, so nobody else has that request in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from klog_broker.dispatch.encoded_response import EncodedReply
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.dispatch.response_slot import ReplySlot
from klog_broker.fetch.changing_fields import find_holes
from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.fetch.reader import FetchReader, read_access, requested_partitions
from klog_broker.fetch.response_parts import make_answer, pack_answer
from klog_broker.fetch.scopes import SessionFetch, WholeFetch, is_enough, scope_of
from klog_broker.fetch.services import FetchServices
from pyspark_klog.errors import BrokerError
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest
from pyspark_klog.protocol.headers import RequestHeader, decode_request_header

MAX_FRAME_BYTES = 4096
"""Of a request that is kept: a hundred partitions."""

GoOn = Callable[
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
"""Takes over a fetch of a scope that was read once and is not answered, with the partitions that
were cold; its answer comes later."""


class KeptFetch:
    """A request that came, and may come again: a ``Prepared``."""

    __slots__ = (
        "__weakref__",
        "_client_address",
        "_connection_id",
        "_frame",
        "_go_on",
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
        go_on: GoOn,
    ) -> None:
        # Not the context: its reply holds on to what was answered.
        self._header = context.header
        self._version = context.api_version
        self._client_address = context.client_address
        self._connection_id = context.connection_id
        self._listener = context.listener
        self._principal = context.principal
        self._services = services
        self._go_on = go_on
        self._request = request
        self._frame: bytes | None = frame
        """Until the first request of the same size: most requests that differ do so in that."""
        self._size_bytes = len(frame)
        self._layout: Struct | None = None
        """The frame's bytes in pieces, and between them the numbers that may differ: correlation
        id, the session's epoch, if the version has that, and the offsets of the partitions."""
        self._pieces: tuple[bytes, ...] = ()
        self._has_epoch = False
        self._rows: Sequence[FetchPartition] = ()
        """The partitions of the request, to which the offsets belong."""
        self._partitions: Sequence[ReadPartition] | None = None
        self._reader: FetchReader | None = None

    def serve(self, frame: memoryview, slot: ReplySlot) -> bool:
        if len(frame) != self._size_bytes:
            return False
        correlation_id = self._take(frame)
        if correlation_id is None:
            return False
        request, version, services = self._request, self._version, self._services
        try:
            scope = scope_of(request, version, services, self._named)
        except BrokerError:
            # The client is wrong about its session: the handler says so.
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
                # Producers have waited for this fetch: they are answered before it is put by.
                services.loop.send_now()
                if any(each.has_moved for each in scope.partitions):
                    # Some of those that have waited append in their turn: a transaction's end.
                    scope.renew()
                    cold = reader.read(scope.partitions)
            context = self._context(correlation_id, slot)
            self._go_on(services, request, context, scope, reader, cold)
            return True
        session_id, told, code = scope.answer()
        parts = pack_answer(correlation_id, version, session_id, code, told)
        if parts is None:
            answer = make_answer(session_id, code, told)
            self._context(correlation_id, slot).reply.send(answer)
        else:
            slot.complete(parts)
        for each in scope.partitions:
            each.note_answered()
        return True

    def _context(self, correlation_id: int, slot: ReplySlot) -> RequestContext:
        kept = self._header
        header = RequestHeader(
            kept.api_key,
            kept.api_version,
            correlation_id,
            kept.client_id,
            kept.unknown_tagged_fields,
        )
        return RequestContext(
            header,
            self._client_address,
            self._connection_id,
            self._listener,
            self._principal,
            EncodedReply(slot, header, self._services.requests),
        )

    def let_go(self) -> None:
        """See LeaderHolders."""
        self._partitions = None

    def _take(self, frame: memoryview) -> int | None:
        """If this is the request once more: puts what is new in it into the request that is kept,
        and returns the correlation id."""
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
        holes = find_holes(frame, header.api_version, position)
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
        """The partitions that the request names: the same ones each time, and their leaders."""
        if self._partitions is None:
            self._partitions = requested_partitions(request, version, services)
            services.leader_holders.add(self)
        for each in self._partitions:
            each.is_noted = False
        return self._partitions
