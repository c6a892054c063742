"""A difference that is declared, and the conditions under which it is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.message import Struct
from pyspark_klog.records.compression import Codec
from tests.support.oracle.names import topic_uuid
from tests.support.oracle.records import MadeRecords
from tests.support.oracle.steps import Case

Allows = Callable[[Case, Any, Any], bool]
"""Takes a case and the values of Kafka and klog; says whether they may differ so."""


SAME = "as 3.9.1"
SERVER_ERROR = "UNKNOWN_SERVER_ERROR"
ORDER = "the order of the checks; klog's first one says more or costs less"


@dataclass(frozen=True)
class Row:
    """One difference. ``field`` is a path in the response; empty: any field of it."""

    api: str
    field: str
    request: str
    oldest: str
    newest: str
    klog: str
    reason: str
    allows: Allows


def is_changed(*words: str) -> Allows:
    """Allows the row if a change of the request's fields contains one of these words."""
    return lambda case, kafka, klog: any(
        word in change for word in words for change in case.changes
    )


def has_codes(kafka: set[int], klog: set[int]) -> Allows:
    return lambda case, theirs, ours: theirs in kafka and ours in klog


def both_refuse(case: Case, kafka: Any, klog: Any) -> bool:
    """Both brokers refuse, for different reasons."""
    return isinstance(kafka, int) and isinstance(klog, int) and kafka != 0 and klog != 0


def all_of(*these: Allows) -> Allows:
    return lambda case, kafka, klog: all(each(case, kafka, klog) for each in these)


def of_request(fits: Callable[[Any], bool]) -> Allows:
    return lambda case, kafka, klog: fits(case.request)


def is_before(version: int) -> Allows:
    return lambda case, kafka, klog: case.version < version


def is_since(version: int) -> Allows:
    return lambda case, kafka, klog: case.version >= version


def partitions_of(request: Any) -> list[Any]:
    return [each for topic in request.topics for each in topic.partitions]


def records_may_be(request: Any, codec: Codec) -> bool:
    """Whether a Produce request has a record set that may be compressed so."""
    return any(
        each.kind in (codec.name.lower(), "likely", "damaged") for each in _record_sets(request)
    )


def records_are(*kinds: str) -> Allows:
    """A record set of the Produce request is of one of these kinds."""
    return of_request(lambda request: any(each.kind in kinds for each in _record_sets(request)))


def has_batch_without_epoch(request: Any) -> bool:
    """Whether a transactional batch of a Produce request has the producer epoch -1."""
    return any(each.is_transactional and each.epoch == -1 for each in _record_sets(request))


def _record_sets(request: Any) -> list[MadeRecords]:
    return [
        each.records
        for topic in request.topic_data
        for each in topic.partition_data
        if isinstance(each.records, MadeRecords)
    ]


def is_fault_of_acks_or_topic(case: Case, kafka: Any, klog: Any) -> bool:
    """Whether klog's code is that of the Produce request's acks, topic or partition."""
    request: Any = case.request
    own = case.topics[0]
    if klog == ErrorCode.INVALID_REQUIRED_ACKS:
        return request.acks not in (-1, 0, 1)
    if klog == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return any(topic.name.startswith("__") for topic in request.topic_data)
    if klog == ErrorCode.UNKNOWN_TOPIC_ID:
        return any(topic.topic_id != topic_uuid(own.name) for topic in request.topic_data)
    return klog == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and any(
        topic.name != own.name or not 0 <= each.index < own.num_partitions
        for topic in request.topic_data
        for each in topic.partition_data
    )


def has_topic_without_partitions(request: Any) -> bool:
    lists = ("partitions", "partition_indexes", "partition_data")
    groups = [request, *getattr(request, "groups", ()), *getattr(request, "transactions", ())]
    topics = [
        topic
        for each in groups
        for name in ("topics", "topic_data", "v3_and_below_topics")
        for topic in getattr(each, name, None) or ()
    ]
    return any(getattr(topic, name, None) == [] for topic in topics for name in lists)


_KEYS = (
    "name",
    "topic",
    "topic_id",
    "partition",
    "partition_index",
    "index",
    "group_id",
    "transactional_id",
    "resource_type",
    "resource_name",
)
"""The fields that tell the rows of a list apart."""


def is_named_twice(case: Case, kafka: Any, klog: Any) -> bool:
    """Whether a list of the request has two elements about the same thing."""
    return _has_twins(case.request)


def _has_twins(value: Any) -> bool:
    if isinstance(value, Struct):
        return any(_has_twins(getattr(value, name)) for name in type(value).__fields__)
    if not isinstance(value, list):
        return False
    names = [
        repr([getattr(each, key, None) for key in _KEYS] if isinstance(each, Struct) else each)
        for each in value
    ]
    return len(set(names)) < len(names) or any(_has_twins(each) for each in value)


def is_under_another_id(case: Case, kafka: Any, klog: Any) -> bool:
    """Whether the producer has committed offsets under its own transactional id before."""
    request: Any = case.request
    earlier: list[Any] = [each.request for each in case.setup]
    return any(
        type(each) is type(request) and each.transactional_id != request.transactional_id
        for each in earlier
    )
