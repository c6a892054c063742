"""Errors of single topics and partitions in the requests and responses of each API.

An API that changes something (Produce, for example) must not carry out what gets the error: the
topics and partitions with the error are removed from the request, and their errors are added to the
response. An API that only reads is carried out, and the errors are written into its response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import NO_TOPIC_ID
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

NameOf = Callable[[Any], str | None]
"""Returns the name of the topic with an id; None for an unknown id."""


class _Change(NamedTuple):
    """The fields of a changing API: topics in request and response, partitions in the request."""

    topics: tuple[str, ...]
    partitions: str | None
    responses: str


_CHANGES: dict[int, _Change] = {
    ApiKey.PRODUCE: _Change(("topic_data",), "partition_data", "responses"),
    ApiKey.OFFSET_COMMIT: _Change(("topics",), "partitions", "topics"),
    ApiKey.TXN_OFFSET_COMMIT: _Change(("topics",), "partitions", "topics"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _Change(
        ("v3_and_below_topics",), "partitions", "results_by_topic_v3_and_below"
    ),
    ApiKey.DELETE_RECORDS: _Change(("topics",), "partitions", "topics"),
    ApiKey.CREATE_TOPICS: _Change(("topics",), None, "topics"),
    ApiKey.DELETE_TOPICS: _Change(("topics", "topic_names"), None, "responses"),
    ApiKey.CREATE_PARTITIONS: _Change(("topics",), None, "results"),
}
_READS = frozenset(
    (
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    )
)
_NUMBERS = ("index", "partition_index", "partition")
_CODES = ("error_code", "partition_error_code")
_NOTHING = {"records": b"", "high_watermark": -1, "leader_id": -1, "committed_offset": -1}
"""Values of fields in a partition's entry that has an error."""


def names_topics(api_key: int) -> bool:
    """Whether the API's responses have errors of single topics or their partitions."""
    return api_key in _CHANGES or api_key in _READS


def names_partitions(api_key: int) -> bool:
    """Whether the API's responses have errors of single partitions."""
    change = _CHANGES.get(api_key)
    return api_key in _READS if change is None else change.partitions is not None


def only_reads(api_key: int) -> bool:
    """Whether the API with errors of single topics changes nothing in the broker."""
    return api_key in _READS


class SplitRequest(NamedTuple):
    """A request in two parts, either of which is None if it would have no topics."""

    chosen: Request | None
    rest: Request | None


def split(request: Request, topic: str, partition: int | None, name_of: NameOf) -> SplitRequest:
    """Divide a request of an API that changes something into the part about ``topic`` (and
    ``partition``, if it is not None) and the rest."""
    change = _CHANGES[request.api_key]
    chosen, rest = copy(request), copy(request)
    for field in change.topics:
        one, other = [], []
        for entry in getattr(request, field) or ():
            if _name(entry, name_of) != topic:
                other.append(entry)
            elif partition is None or change.partitions is None:
                one.append(entry)
            else:
                _divide(entry, change.partitions, partition, one, other)
        setattr(chosen, field, one)
        setattr(rest, field, other)
    return SplitRequest(
        chosen if any(getattr(chosen, field) for field in change.topics) else None,
        rest if any(getattr(rest, field) for field in change.topics) else None,
    )


def _divide(entry: Any, field: str, partition: int, one: list[Any], other: list[Any]) -> None:
    """Put the entry of a topic with only ``partition`` into ``one``, and with only the other
    partitions into ``other``."""
    for target, is_chosen in ((one, True), (other, False)):
        rows = [row for row in getattr(entry, field) if (_number(row) == partition) == is_chosen]
        if rows:
            part = copy(entry)
            setattr(part, field, rows)
            target.append(part)


def merge(response: Response, errors: Response) -> None:
    """Add the entries of topics in ``errors`` to the response to the rest of the request."""
    field = _CHANGES[response.api_key].responses
    getattr(response, field).extend(getattr(errors, field))


def mark(
    response: Response, topic: str | None, partition: int | None, code: ErrorCode, name_of: NameOf
) -> bool:
    """Write an error into the entries about a topic (None: all topics) and partition (None: all of
    the topic's partitions); return whether the response has such an entry."""
    found = False
    for entry in _topic_entries(response):
        if topic is not None and _name(entry, name_of) != topic:
            continue
        if partition is None and "error_code" in entry.__fields__:
            entry.error_code, entry.partitions = int(code), []
            found = True
            continue
        for row in entry.partitions:
            if partition is None or _number(row) == partition:
                _mark_partition(row, code)
                found = True
    return found


def _mark_partition(row: Any, code: ErrorCode) -> None:
    for field in _CODES:
        if field in row.__fields__:
            setattr(row, field, int(code))
    for field, value in _NOTHING.items():
        if field in row.__fields__:
            setattr(row, field, value)


def fetches(request: Any, topic: str, partition: int | None, name_of: NameOf) -> bool:
    """Whether a Fetch request lists the topic, and the partition if it is not None."""
    return any(
        partition is None or any(row.partition == partition for row in entry.partitions)
        for entry in request.topics
        if _name(entry, name_of) == topic
    )


def _topic_entries(message: Any) -> Iterator[Any]:
    """Find the entries of topics in a response, also inside the entries of groups."""
    for field, row in message.__fields__.items():
        struct = None if row.element is None else row.element.struct
        if struct is None:
            continue
        for entry in getattr(message, field) or ():
            if "partitions" in struct.__fields__:
                yield entry
            elif "topics" in struct.__fields__:
                yield from _topic_entries(entry)


def _name(entry: Any, name_of: NameOf) -> str | None:
    if isinstance(entry, str):
        return entry
    name: str | None = getattr(entry, "name", None) or getattr(entry, "topic", None)
    topic_id = getattr(entry, "topic_id", NO_TOPIC_ID)
    return name_of(topic_id) if not name and topic_id != NO_TOPIC_ID else name


def _number(row: Any) -> int:
    if isinstance(row, int):
        return row
    return next(int(getattr(row, field)) for field in _NUMBERS if field in row.__fields__)
