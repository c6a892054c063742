"""Fetch: long polls whose records stay in the log files until they are sent.

The partitions are read immediately. If they have fewer than ``min_bytes`` that the client may read
(a consumer up to the high watermark or last stable offset, a follower up to the log's end), the
fetch waits in the purgatory. The wait ends when there are ``min_bytes``, this broker has stopped
leading one of the partitions, or ``max_wait_ms`` has passed. A follower's wait also ends when this
broker begins to lead a partition that has the follower in its ISR (fetch/awaited_followers.py).
Where the look-up of the fetch offset in a log would block on the disk, a helper thread reads the
pages into the page cache first. For clients before version 4 the records are converted down before
they are sent (down_conversion.py).

The *scope* of a fetch is the set of partitions that it reads: the partitions in the request, or the
partitions of its fetch session that may have changed (scopes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klog_broker.dispatch.access import on_topics, sometimes_on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.fetch.awaited_followers import FollowerKey
from klog_broker.fetch.cached_fetch import MAX_FRAME_BYTES, CachedFetch
from klog_broker.fetch.down_conversion import Converted
from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.fetch.reader import FetchReader, read_access
from klog_broker.fetch.response_parts import make_response, pack_response
from klog_broker.fetch.scopes import SessionFetch, WholeFetch, is_enough, scope_of
from klog_broker.fetch.services import FetchServices
from klog_broker.runtime.event_loop.purgatory import DelayedOperation
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.keys import ApiKey

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class _DelayedFetch(DelayedOperation):
    """One Fetch request, from the first read of its partitions until its response is sent."""

    __slots__ = ("_context", "_reader", "_request", "_scope", "_services")
    is_long_poll = True
    kind = "Fetch"

    def __init__(
        self,
        services: FetchServices,
        request: FetchRequest,
        context: RequestContext,
        scope: WholeFetch | SessionFetch,
        reader: FetchReader,
    ) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._reader = reader
        self._scope = scope

    def start(self) -> None:
        """Read the partitions, and answer if they have at least the request's ``min_bytes``, the
        result of one of them, such as an error, must not wait, or there is nothing to wait for,
        such as with ``max_wait_ms`` 0; otherwise wait in the purgatory. If the client has
        disconnected, only drop the records that were read."""
        context = self._context
        if not context.response_sink.is_open:
            context.response_sink.skip()
            self._release_records()
            return
        self.continue_after_read(self._read())

    def continue_after_read(self, cold: list[ReadPartition]) -> None:
        """Continue after the first read. ``cold`` are the partitions whose read would have blocked
        on the disk, so helper threads read the missing pages into the page cache first. Without
        such partitions, answer if there are at least the request's ``min_bytes``, the result of a
        partition, such as an error, must not wait, or there is nothing to wait for, such as with
        ``max_wait_ms`` 0; otherwise wait in the purgatory."""
        context = self._context
        if cold:
            self._warm(cold)
            return
        request = self._request
        if request.max_wait_ms <= 0 or is_enough(self._scope, request.min_bytes):
            self._answer()
            return
        for each in self._scope.partitions:
            each.may_block = False
        self._scope.stay()
        purgatory, keys, wait_ms = self._services.purgatory, self._scope.keys(), request.max_wait_ms
        follower = self._reader.follower
        if follower is not None:
            keys.append(FollowerKey(follower))
            wait_ms = self._services.awaited_followers.longest_wait_ms(follower, wait_ms)
        if not purgatory.watch(self, keys, wait_ms):
            context.response_sink.when_closed(self._on_closed)

    def _on_closed(self) -> None:
        self._services.purgatory.cancel(self)
        self._release_records()

    def try_complete(self, _now_ms: int) -> bool:
        if not (self._scope.has_moved() or self._scope.has_ended):
            return False
        cold = self._read()
        if cold:
            self._warm(cold, sends_response=True)
            return True
        if not is_enough(self._scope, self._request.min_bytes):
            self._scope.stay()
            return False
        self._answer()
        if self._reader.follower is not None:
            # Producers with acks=all wait for this follower's next fetch, so send the response now,
            # before the other responses of this event-loop turn.
            self._context.response_sink.send_early()
        return True

    def on_expire(self, _now_ms: int) -> None:
        self._finish()

    def _finish(self) -> None:
        """End the wait in the purgatory: read the partitions once more, then answer. If a look-up
        would block on the disk, helper threads read the pages first, and the partitions are read
        again."""
        cold = self._read()
        if cold:
            self._warm(cold, sends_response=True)
        else:
            self._answer()

    def _read(self) -> list[ReadPartition]:
        """Read the partitions of the fetch's scope: those in the request, or those of its fetch
        session that may have changed. Return the cold partitions: their look-ups would block on the
        disk, so helper threads must read the pages before the partitions are read again."""
        self._scope.renew()
        return self._reader.read(self._scope.partitions)

    def _warm(self, cold: list[ReadPartition], sends_response: bool = False) -> None:
        """Let helper threads read the pages of the ``cold`` partitions (their look-ups would block
        on the disk) into the page cache, then read all partitions of the fetch again."""
        left = len(cold)

        def on_pages_read(_: object, _error: BaseException | None) -> None:
            # Ignore an I/O error of the helper thread: the error occurs again when the partition is
            # read again.
            nonlocal left
            left -= 1
            if left == 0:
                if sends_response:
                    self._finish()
                else:
                    self.start()

        for each in cold:
            assert each.cold is not None
            # After the helper thread, the event loop's own read may block on the disk: if the pages
            # leave the page cache so soon after the helper has read them, a second helper could not
            # keep them there either.
            each.may_block = True
            self._services.requests.count("cold-look-ups")
            self._services.helpers.submit(each.cold, on_pages_read)

    def _answer(self) -> None:
        """Answer with the records that were read. For a client of an old version, first convert the
        records down to the record format that it knows."""
        magic = self._reader.converts_to
        converted = [each for each in self._scope.partitions if each.to_convert is not None]
        if magic is None or not converted:
            self._send()
            return

        def on_converted(found: Sequence[Converted], error: BaseException | None) -> None:
            if error is not None:
                self._services.requests.bugs.report("conversion down", error)
                found = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(converted)
            for each, records in zip(converted, found, strict=True):
                if isinstance(records, ErrorCode):
                    if records is ErrorCode.CORRUPT_MESSAGE and each.leader is not None:
                        each.leader.log.report_damage(
                            f"Fetch offset={each.request.fetch_offset}",
                            "the records cannot be converted to an older format",
                        )
                    each.refuse(records)
                else:
                    each.records = records
            self._send()

        sets = [each.to_convert for each in converted if each.to_convert is not None]
        cancel = self._services.conversions.start_conversion(sets, magic, on_converted)

        def on_closed() -> None:
            cancel()
            self._release_records()

        self._context.response_sink.when_closed(on_closed)

    def _send(self) -> None:
        context = self._context
        if not context.response_sink.is_open:
            context.response_sink.skip()
            self._release_records()
            return
        session_id, included, code = self._scope.answer()
        version, correlation_id = context.api_version, context.header.correlation_id
        parts = pack_response(correlation_id, version, session_id, code, included)
        if parts is None:
            context.response_sink.send(make_response(session_id, code, included))
        else:
            context.response_sink.send_parts(parts)
        for each in included:
            each.count_bytes_out()
        self._release_records()

    def _release_records(self) -> None:
        """Drop the records that were read: the response holds them now, or the client has
        disconnected. The partitions of a fetch session may stay in memory for days, so they must
        not keep these records."""
        for each in self._scope.partitions:
            each.release_records()


def handle(
    services: FetchServices, request: FetchRequest, context: RequestContext
) -> FetchResponse | None:
    version = context.api_version
    scope = scope_of(request, version, services)
    may_read = read_access(services, request, version, context.principal, context.client_address)
    reader = FetchReader(request, version, services, context.listener, may_read)
    _DelayedFetch(services, request, context, scope, reader).start()
    return None


def _continue_fetch(
    services: FetchServices,
    request: FetchRequest,
    context: RequestContext,
    scope: WholeFetch | SessionFetch,
    reader: FetchReader,
    cold: list[ReadPartition],
) -> None:
    _DelayedFetch(services, request, context, scope, reader).continue_after_read(cold)


def cache_request(
    services: FetchServices, frame: bytes, request: FetchRequest, context: RequestContext
) -> CachedFetch:
    return CachedFetch(services, frame, request, context, _continue_fetch)


def error_response(request: Any, code: ErrorCode) -> FetchResponse:
    """Return a response with ``code`` for the whole response and for every partition, since
    versions before 7 have no top-level error. A response whose error concerns the fetch session
    lists no partitions."""

    def refused(index: int) -> PartitionData:
        return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")

    if code in _SESSION_ERRORS:
        return FetchResponse(error_code=code)
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[refused(each.partition) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


API = BrokerApi(
    ApiKey.FETCH,
    handle,
    error_response,
    cache_request=cache_request,
    cached_request_max_bytes=MAX_FRAME_BYTES,
    access=(
        on_topics(AclOperation.READ),
        sometimes_on_cluster(AclOperation.CLUSTER_ACTION),
    ),
)
