"""Offsets as Spark's Kafka connector writes them: ``{"topic":{"0":23,"1":-2}}``. Pure.

Spark compares offsets as text, so what goes out is sorted: topics by name, partitions by number.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError

LATEST = -1
"""In JSON: from the end."""
EARLIEST = -2
"""In JSON: from the beginning."""

Offsets = dict[TopicPartition, int]

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


def to_json_dict(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets as the peer's JSON has them, in its one order."""
    result: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        result.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return result


def from_json_dict(given: object, where: str) -> Offsets:
    """Offsets (>= 0) that klog or the peer wrote; ``where`` says in a message what they are.

    :raises OffsetError: for any other shape
    """
    offsets = _read_map(given, where)
    negative = [str(p) for p, offset in offsets.items() if offset < 0]
    if negative:
        raise OffsetError(f"{where} has negative offsets for {', '.join(negative)}: {given!r}")
    return offsets


def read_offsets(text: str, name: str) -> Offsets:
    """Offsets of an option: -2 earliest, -1 latest, or the offset itself.

    :raises OffsetError: naming the option, what was given and an example of what is expected
    """
    offsets = _read_map(_load(text, name, _OFFSETS_EXAMPLE), name)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise OffsetError(
                f"{name} has offset {offset} for {partition}; expected -2 (earliest), "
                "-1 (latest), or 0 and more"
            )
    if not offsets:
        raise OffsetError(f"{name} names no partition; expected JSON like {_OFFSETS_EXAMPLE}")
    return offsets


def read_assignment(text: str) -> frozenset[TopicPartition]:
    """The partitions that option ``assign`` names.

    :raises OffsetError: saying what was given, with an example of what is expected
    """
    given = _load(text, "assign", _ASSIGN_EXAMPLE)
    partitions: set[TopicPartition] = set()
    rows = given.items() if isinstance(given, dict) else ()
    for topic, numbers in rows:
        if not isinstance(numbers, list):
            partitions.clear()
            break
        for number in numbers:
            if not _is_int(number) or not 0 <= number <= _PARTITION_MAX:
                raise OffsetError(
                    f"assign has partition {number!r} of topic {topic!r}; expected 0 up"
                )
            partitions.add(TopicPartition(topic, number))
    if not partitions:
        raise OffsetError(f"assign is {text!r}; expected JSON like {_ASSIGN_EXAMPLE}")
    return frozenset(partitions)


def _load(text: str, name: str, example: str) -> Any:
    def no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise OffsetError(f"{name} names a topic or partition twice: {text!r}")
        return result

    try:
        return json.loads(text, object_pairs_hook=no_doubles)
    except (ValueError, RecursionError):
        raise OffsetError(f"{name} is {text!r}; expected JSON like {example}") from None


def _read_map(given: object, where: str) -> Offsets:
    offsets: Offsets = {}
    if not isinstance(given, dict):
        raise OffsetError(f"{where} is {given!r}; expected JSON like {_OFFSETS_EXAMPLE}")
    for topic, partitions in given.items():
        if not isinstance(topic, str) or not isinstance(partitions, dict):
            raise OffsetError(f"{where} is {given!r}; expected JSON like {_OFFSETS_EXAMPLE}")
        for number, offset in partitions.items():
            if not _is_number_text(number) or not _is_int(offset) or offset > _OFFSET_MAX:
                raise OffsetError(
                    f"{where} has {number!r}: {offset!r} for topic {topic!r}; expected a partition "
                    f"and its offset, as in {_OFFSETS_EXAMPLE}"
                )
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number_text(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) <= 10
        and int(value) <= _PARTITION_MAX
    )
