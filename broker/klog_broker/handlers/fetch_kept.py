"""Fetches that come again and again: a consumer's differ in correlation id, session epoch and
offsets alone.

Of a connection's last Fetch is kept (prepared.py): the request's bytes around these fields, the
request as it was decoded, and what was found for it (its partitions, who leads them, the reader).
The next one with the same bytes is not decoded: the fields are read where they lie, and put into
the request that is kept. A connection's next Fetch is begun only when its last one is answered, so
nobody else has that request in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from klog_broker.handlers.context import RequestContext
from klog_broker.handlers.encoded_reply import EncodedReply
from klog_broker.handlers.fetch_holes import CORRELATION_ID_AT, find_holes
from klog_broker.handlers.fetch_read import FetchReader, requested_partitions
from klog_broker.handlers.fetch_scopes import SessionFetch, WholeFetch, scope_of
from klog_broker.handlers.read_partition import ReadPartition
from klog_broker.handlers.reply_slot import ReplySlot
from pyspark_klog.errors import BrokerError
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest
from pyspark_klog.protocol.headers import RequestHeader, decode_request_header

MAX_FRAME_BYTES = 4096
"""Of a request that is kept: a hundred partitions."""

_INT32 = Struct(">i").unpack_from
_INT64 = Struct(">q").unpack_from

Start = Callable[[FetchRequest, RequestContext, WholeFetch | SessionFetch, FetchReader], None]
"""Begins a fetch of a scope; its answer comes when there is one."""


class KeptFetch:
    """A request that came, and may come again: a ``Prepared``."""

    __slots__ = (
        "__weakref__",
        "_broker",
        "_client_address",
        "_connection_id",
        "_epoch_at",
        "_frame",
        "_header",
        "_listener",
        "_offsets",
        "_partitions",
        "_pieces",
        "_principal",
        "_reader",
        "_request",
        "_size_bytes",
        "_start",
    )

    def __init__(
        self, frame: bytes, request: FetchRequest, context: RequestContext, start: Start
    ) -> None:
        # Not the context: its reply holds on to what was answered.
        self._header = context.header
        self._client_address = context.client_address
        self._connection_id = context.connection_id
        self._listener = context.listener
        self._principal = context.principal
        self._broker = context.broker
        self._start = start
        self._request = request
        self._frame: bytes | None = frame
        """Until the first request of its size: most requests that differ do so in that."""
        self._size_bytes = len(frame)
        self._epoch_at = 0
        self._pieces: tuple[tuple[int, bytes], ...] = ()
        self._offsets: tuple[tuple[int, FetchPartition], ...] = ()
        self._partitions: Sequence[ReadPartition] | None = None
        self._reader: FetchReader | None = None

    def serve(self, frame: memoryview, slot: ReplySlot) -> bool:
        header = self._take(frame)
        if header is None:
            return False
        context = RequestContext(
            header,
            self._client_address,
            self._connection_id,
            self._listener,
            self._principal,
            EncodedReply(slot, header, self._broker),
            self._broker,
        )
        request = self._request
        try:
            scope = scope_of(request, context, self._named)
        except BrokerError:
            # The client is wrong about its session: the handler says so.
            return False
        if self._reader is None:
            self._reader = FetchReader(request, context)
        self._start(request, context, scope, self._reader)
        return True

    def let_go(self) -> None:
        """See LeaderHolders."""
        self._partitions = None

    def _take(self, frame: memoryview) -> RequestHeader | None:
        """If this is the request once more: puts what is new into the one that is kept, and
        returns its header."""
        if len(frame) != self._size_bytes:
            return None
        if self._frame is not None:
            self._find_holes(self._frame)
        if not self._pieces:
            return None
        data = bytes(frame)
        for at, piece in self._pieces:
            if not data.startswith(piece, at):
                return None
        if self._epoch_at:
            (self._request.session_epoch,) = _INT32(data, self._epoch_at)
        for at, partition in self._offsets:
            (partition.fetch_offset,) = _INT64(data, at)
        api_key, api_version, _, client_id, tags = self._header
        return RequestHeader(
            api_key, api_version, _INT32(data, CORRELATION_ID_AT)[0], client_id, tags
        )

    def _find_holes(self, frame: bytes) -> None:
        self._frame = None
        header, position = decode_request_header(frame)
        holes = find_holes(frame, header.api_version, position)
        if holes is not None:
            rows = [each for topic in self._request.topics for each in topic.partitions]
            self._offsets = tuple(zip(holes.offsets_at, rows, strict=True))
            self._epoch_at = holes.epoch_at
            self._pieces = tuple(holes.pieces(frame))

    def _named(self, request: FetchRequest, context: RequestContext) -> Sequence[ReadPartition]:
        """The partitions that the request names: the same ones each time, and their leaders."""
        if self._partitions is None:
            self._partitions = requested_partitions(request, context)
            self._broker.leader_holders.add(self)
        return self._partitions
