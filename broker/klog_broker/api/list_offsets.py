"""ListOffsets: returns offsets by timestamp, and logs' start and end offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from klog_broker.api.services import LogServices
from klog_broker.dispatch.access import on_topics
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.log.errors import ColdRead, DamagedLog, LogStorageError, LongLookUp
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.read.read_results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TimestampOffset,
)
from klog_broker.replication.leader import Leader
from klog_broker.resources.led_partitions import check_leader_epoch, led_partition
from klog_broker.resources.requested_topics import check_topic
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.errors import RecordsError

_CONSUMER = -1
_READ_COMMITTED = 1
_FIRST_VERSION_WITH_EPOCH = 4
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5

# Cost of finding an offset by timestamp, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py): the look-up searches the index and reads records.
_LOOK_UP = 20

# The first version of ListOffsets that has each special timestamp (a negative number that stands
# for an offset, such as the log's end).
_SINCE = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class _ListOffsets:
    """One ListOffsets request. If the look-up of an offset would block on the disk or take long, a
    helper thread does this part, and the request continues after that."""

    def __init__(
        self, services: LogServices, request: ListOffsetsRequest, context: RequestContext
    ) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._response = ListOffsetsResponse()
        self._left = self._each()
        self._held: tuple[ListOffsetsTopicResponse, ListOffsetsPartition | None] | None = None
        self._warmed: set[tuple[str, int]] = set()
        self._found: dict[tuple[str, int], TimestampOffset] = {}
        self._counts = Counter(
            (topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        )

    def run(self) -> ResponseSteps:
        """Return the response; each yield is the cost of a step in units of about 5 us of the event
        loop's time. If the look-up of an offset needs a helper thread, return None instead; ``run``
        is called again after the helper has finished, and continues with the same partition."""
        while (row := self._held or next(self._left, None)) is not None:
            self._held = None
            topic, requested = row
            if requested is None:
                yield 1
                continue
            yield 1 if requested.timestamp < 0 else _LOOK_UP
            try:
                topic.partitions.append(self._answer(topic.name, requested))
            except _NeedsHelper as waits:
                self._held = row
                self._give_to_a_helper(waits)
                return None
        return self._response

    def _each(self) -> Iterator[tuple[ListOffsetsTopicResponse, ListOffsetsPartition | None]]:
        """Yield each partition of the request, together with the response of its topic.

        Each topic's response is first yielded with None in place of a partition, so that the caller
        yields a cost for the topic, too.
        """
        for topic in self._request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            self._response.topics.append(answers)
            yield answers, None
            for requested in topic.partitions:
                yield answers, requested

    def _give_to_a_helper(self, waits: _NeedsHelper) -> None:
        def on_looked_up(found: object, _: BaseException | None) -> None:
            if isinstance(found, TimestampOffset):
                self._found[waits.key] = found
            self._warmed.add(waits.key)
            self._context.response_sink.send_in_slices(self.run())

        self._services.requests.count("cold-look-ups")
        self._services.helpers.submit(waits.work, on_looked_up)

    def _answer(self, topic: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
        key = (topic, requested.partition_index)
        leader: Leader | None = None
        try:
            check_topic(self._services, self._context, AclOperation.DESCRIBE, topic)
            # Kafka refuses a partition that the request names twice, except in version 0.
            if self._counts[key] > 1 and self._context.api_version > 0:
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            leader = led_partition(self._services, topic, requested.partition_index)
            check_leader_epoch(leader, requested.current_leader_epoch)
            if self._context.api_version == 0:
                answer.old_style_offsets = self._offsets_before(leader.log, requested)
            else:
                self._find(key, leader, requested.timestamp, answer)
        except LogStorageError:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        except OSError as error:
            if leader is not None:
                leader.log.read_failed(error)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        except (DamagedLog, RecordsError) as error:
            if leader is not None:
                leader.log.report_damage(f"ListOffsets timestamp={requested.timestamp}", error)
            answer.error_code = ErrorCode.CORRUPT_MESSAGE
        except BrokerError as error:
            answer.error_code = error.code
        except _NeedsHelper:
            raise
        except Exception as error:
            self._services.requests.bugs.report(
                f"offsets of {topic}-{requested.partition_index}", error
            )
            answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return answer

    def _find(
        self,
        key: tuple[str, int],
        leader: Leader,
        timestamp: int,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        version = self._context.api_version
        if timestamp < 0 and _SINCE.get(timestamp, version + 1) > version:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        readable_end = self._readable_end(leader.log)
        if timestamp == LATEST_TIMESTAMP:
            self._check_watermark(leader)
            answer.offset = readable_end
            if version >= _FIRST_VERSION_WITH_EPOCH:
                answer.leader_epoch = leader.leader_epoch
            return
        found = self._found.get(key)
        try:
            if found is None:
                found = leader.log.offset_for_timestamp(timestamp, may_block=key in self._warmed)
        except ColdRead as read:
            raise _NeedsHelper(key, read.warm) from None
        except LongLookUp as long:
            raise _NeedsHelper(key, long.search) from None
        is_of_record = timestamp >= 0 or timestamp == MAX_TIMESTAMP
        if found is None or (is_of_record and found.offset >= readable_end):
            # No record or offset matches the requested timestamp, or the matching record is not
            # below the offset up to which the client may read (for consumers the high watermark or
            # last stable offset).
            if is_of_record:
                self._check_watermark(leader)
            return
        if is_of_record:
            answer.timestamp = found.timestamp_ms
        answer.offset = found.offset
        if version >= _FIRST_VERSION_WITH_EPOCH:
            answer.leader_epoch = found.leader_epoch

    def _offsets_before(self, log: PartitionLog, requested: ListOffsetsPartition) -> list[int]:
        """Return the offsets of a version 0 response, newest first and at most as many as
        requested: base offsets of the segments up to the newest one that was last modified by the
        requested time, none above the offset up to which the client may read. LATEST_TIMESTAMP
        selects all segments and the log's end, EARLIEST_TIMESTAMP only the log's start."""
        if requested.max_num_offsets <= 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if (
            requested.timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP)
            and requested.timestamp < 0
        ):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        written = [
            (max(each.base_offset, log.log_start_offset), each.log_file.modified_ms())
            for each in log.segments
        ]
        if log.segments[-1].size_bytes:
            written.append((log.log_end_offset, self._services.clock.now_ms()))
        if requested.timestamp == EARLIEST_TIMESTAMP:
            written = written[:1]
        elif requested.timestamp != LATEST_TIMESTAMP:
            while written and written[-1][1] > requested.timestamp:
                written.pop()
        end = self._readable_end(log)
        offsets = sorted({min(offset, end) for offset, _ in written}, reverse=True)
        return offsets[: requested.max_num_offsets]

    def _check_watermark(self, leader: Leader) -> None:
        """Raise BrokerError for a consumer while an offset could be lower than one that the
        previous leader returned: a new leader may not know the latest high watermark yet
        (KIP-207)."""
        if self._request.replica_id == _CONSUMER and leader.lags_behind_epoch:
            knows_code = self._context.api_version >= _FIRST_VERSION_WITH_NOT_AVAILABLE
            raise BrokerError(
                ErrorCode.OFFSET_NOT_AVAILABLE if knows_code else ErrorCode.LEADER_NOT_AVAILABLE
            )

    def _readable_end(self, log: PartitionLog) -> int:
        if self._request.replica_id != _CONSUMER:
            return log.log_end_offset
        if self._request.isolation_level == _READ_COMMITTED:
            return log.last_stable_offset
        return log.high_watermark


class _NeedsHelper(Exception):
    """Raised when the look-up of an offset would block on the disk or take long: a helper thread
    has to run ``work`` before the look-up can continue."""

    def __init__(self, key: tuple[str, int], work: Callable[[], object]) -> None:
        self.key = key
        self.work = work


def handle(
    services: LogServices, request: ListOffsetsRequest, context: RequestContext
) -> ResponseSteps:
    return _ListOffsets(services, request, context).run()


def error_response(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = BrokerApi(
    ApiKey.LIST_OFFSETS, handle, error_response, access=(on_topics(AclOperation.DESCRIBE),)
)
