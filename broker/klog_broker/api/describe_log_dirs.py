"""DescribeLogDirs (key 35): returns the partitions in each data directory and its volume's size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klog_broker.api.services import LogServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import DiskUsage
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pyspark_klog.protocol.keys import ApiKey

_FIRST_VERSION_WITH_VOLUMES = 4

# How many segments' sizes can be summed in about 5 us of the event loop's time, the unit of cost
# that _describe yields (runtime/event_loop/slices.py).
_SEGMENTS_AN_ELEMENT = 20

_Usages = Mapping[LogDirectory, DiskUsage | None]


def handle(
    services: LogServices, request: DescribeLogDirsRequest, context: RequestContext
) -> ResponseSteps | None:
    """Answer with the logs of the requested partitions; a null list of topics selects all topics.
    Partitions without a log on this broker are left out."""
    directories = services.logs.directories
    if context.api_version < _FIRST_VERSION_WITH_VOLUMES:
        return _describe(request, services, dict.fromkeys(directories, DiskUsage(-1, -1)))

    def measure_usages() -> _Usages:
        return {directory: _usage(directory) for directory in directories}

    def answer_with(usages: _Usages | None, error: BaseException | None) -> None:
        if usages is None:
            services.requests.bugs.report(
                ApiKey.DESCRIBE_LOG_DIRS.name, error or RuntimeError("no answer")
            )
            context.response_sink.send(error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        context.response_sink.send_in_slices(_describe(request, services, usages))

    services.helpers.submit(measure_usages, answer_with)
    return None


def _usage(directory: LogDirectory) -> DiskUsage | None:
    """Return the size of the directory's volume; None after an I/O error. Runs in a helper
    thread."""
    try:
        return directory.files.disk_usage(directory.path)
    except OSError:
        return None


def _describe(
    request: DescribeLogDirsRequest, services: LogServices, usages: _Usages
) -> ResponseSteps:
    """Return the response; each yield is the cost of a step in units of about 5 us of the event
    loop's time. A long response is made over several event-loop turns: a partition that is created
    or deleted meanwhile may or may not be in it."""
    results = {directory: _result(directory, usage) for directory, usage in usages.items()}
    topics: dict[tuple[LogDirectory, str], DescribeLogDirsTopic] = {}
    for log in _wanted(request, services):
        if log is None:
            yield 1
            continue
        segments = log.segments
        yield 1 + len(segments) // _SEGMENTS_AN_ELEMENT
        result = results[log.log_directory]
        if result.error_code != ErrorCode.NONE:
            continue
        topic, partition = log.topic_partition
        key = (log.log_directory, topic)
        if key not in topics:
            topics[key] = DescribeLogDirsTopic(name=topic)
            result.topics.append(topics[key])
        size = sum(segment.size_bytes for segment in segments)
        # The log of a replica never ends below its high watermark, so the offset lag is always 0.
        row = DescribeLogDirsPartition(partition_index=partition, partition_size=size)
        topics[key].partitions.append(row)
    for directory, result in results.items():
        if directory.is_offline and result.error_code == ErrorCode.NONE:
            # The directory went offline while this response was made.
            results[directory] = _result(directory, None)
    return DescribeLogDirsResponse(results=list(results.values()))


def _result(directory: LogDirectory, usage: DiskUsage | None) -> DescribeLogDirsResult:
    path = str(directory.path.absolute())
    if usage is None or directory.is_offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
    return DescribeLogDirsResult(
        log_dir=path, total_bytes=usage.total_bytes, usable_bytes=usage.usable_bytes
    )


def _wanted(
    request: DescribeLogDirsRequest, services: LogServices
) -> Iterable[PartitionLog | None]:
    """Yield each requested log once. Yield None, which lets the caller count the time of the
    look-up, for each topic, for a partition without a log on this broker, and for a repeated
    partition."""
    if request.topics is None:
        yield from services.logs.logs()
        return
    named: set[TopicPartition] = set()
    for requested in request.topics:
        yield None
        for index in requested.partitions:
            found = TopicPartition(requested.topic, index)
            is_new = found not in named
            named.add(found)
            yield services.logs.get(found) if is_new else None


def error_response(_: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Return a response with ``code``; only versions from 3 on have a field for the error."""
    return DescribeLogDirsResponse(error_code=code)


API = BrokerApi(
    ApiKey.DESCRIBE_LOG_DIRS, handle, error_response, access=(on_cluster(AclOperation.DESCRIBE),)
)
