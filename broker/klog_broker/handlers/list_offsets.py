"""ListOffsets: offsets by time, and a log's start and end."""

from __future__ import annotations

from collections import Counter

from klog_broker.handlers.context import AnswerSteps, RequestContext
from klog_broker.handlers.dispatcher import ApiHandler
from klog_broker.handlers.partitions import check_leader_epoch, led_log
from klog_broker.log.errors import ColdRead, DamagedLog, LogStorageError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
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

_DEBUGGING_CONSUMER = -2
_FIRST_VERSION_WITH_EPOCH = 4

# An offset by time takes a search in the index, and records to be read.
_LOOK_UP = 20

# The timestamps with a meaning of their own, and the version that brought each.
_SINCE = {
    LATEST_TIMESTAMP: 0,
    EARLIEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class _ListOffsets:
    """One request, read as often as it takes until no look-up has to wait for the disk."""

    def __init__(self, request: ListOffsetsRequest, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self._warmed: set[tuple[str, int]] = set()
        self._counts = Counter(
            (topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        )

    def run(self) -> AnswerSteps:
        """Answers, or lets a helper warm the first cold look-up and comes back."""
        response = ListOffsetsResponse()
        try:
            for topic in self._request.topics:
                yield 1
                found = ListOffsetsTopicResponse(name=topic.name)
                response.topics.append(found)
                for each in topic.partitions:
                    yield 1 if each.timestamp < 0 else _LOOK_UP
                    found.partitions.append(self._answer(topic.name, each))
        except _Cold as waits:
            self._warmed.add(waits.key)
            self._context.broker.count("cold-look-ups")
            self._context.broker.helpers.submit(waits.read.warm, lambda *_: self._run_again())
            return None
        return response

    def _run_again(self) -> None:
        self._context.reply.send_in_slices(self.run())

    def _answer(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        key = (topic, asked.partition_index)
        try:
            if self._counts[key] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            log = led_log(self._context.broker, topic, asked.partition_index)
            check_leader_epoch(log, asked.current_leader_epoch)
            if self._context.api_version == 0:
                answer.old_style_offsets = self._offsets_before(log, asked)
            else:
                self._find(key, log, asked.timestamp, answer)
        except (LogStorageError, OSError):
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        except (DamagedLog, RecordsError):
            answer.error_code = ErrorCode.CORRUPT_MESSAGE
        except BrokerError as error:
            answer.error_code = error.code
        except _Cold:
            raise
        except Exception as error:
            self._context.broker.bugs.report(f"offsets of {topic}-{asked.partition_index}", error)
            answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return answer

    def _find(
        self,
        key: tuple[str, int],
        log: PartitionLog,
        timestamp: int,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        version = self._context.api_version
        if timestamp < 0 and _SINCE.get(timestamp, version + 1) > version:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        readable_end = self._readable_end(log)
        if timestamp == LATEST_TIMESTAMP:
            answer.offset = readable_end
            if version >= _FIRST_VERSION_WITH_EPOCH:
                answer.leader_epoch = log.leader_epoch
            return
        try:
            found = log.offset_for_timestamp(timestamp, may_block=key in self._warmed)
        except ColdRead as read:
            raise _Cold(key, read) from None
        if found is None:
            return
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
            if found.offset >= readable_end:
                return  # not for readers yet
            answer.timestamp = found.timestamp_ms
        answer.offset = found.offset
        if version >= _FIRST_VERSION_WITH_EPOCH:
            answer.leader_epoch = found.leader_epoch

    def _offsets_before(self, log: PartitionLog, asked: ListOffsetsPartition) -> list[int]:
        """Version 0: the ends and beginnings, newest first, of segments last written by then."""
        if asked.max_num_offsets <= 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if asked.timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP) and asked.timestamp < 0:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        written = [
            (max(each.base_offset, log.log_start_offset), each.log_file.modified_ms())
            for each in log.segments
        ]
        if log.segments[-1].size_bytes:
            written.append((log.log_end_offset, self._context.broker.clock.now_ms()))
        if asked.timestamp == EARLIEST_TIMESTAMP:
            written = written[:1]
        elif asked.timestamp != LATEST_TIMESTAMP:
            while written and written[-1][1] > asked.timestamp:
                written.pop()
        end = self._readable_end(log)
        offsets = sorted({min(offset, end) for offset, _ in written}, reverse=True)
        return offsets[: asked.max_num_offsets]

    def _readable_end(self, log: PartitionLog) -> int:
        if self._request.replica_id == _DEBUGGING_CONSUMER:
            return log.log_end_offset
        # The last stable offset (read_committed) is the same: there are no transactions.
        return log.high_watermark


class _Cold(Exception):
    """A look-up has to wait for the disk."""

    def __init__(self, key: tuple[str, int], read: ColdRead) -> None:
        self.key = key
        self.read = read


def handle(request: ListOffsetsRequest, context: RequestContext) -> AnswerSteps:
    return _ListOffsets(request, context).run()


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


HANDLER = ApiHandler(ApiKey.LIST_OFFSETS, handle, error_response)
