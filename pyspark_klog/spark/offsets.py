"""Offsets as Spark's Kafka connector writes them: ``{"topic":{"0":23,"1":-2}}``. Pure.

Spark compares offsets as text, so the JSON is sorted: topics by name, partitions by number.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark_klog._version import __version__
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError

LATEST = -1
"""The number that stands for a partition's end in the JSON of options."""
EARLIEST = -2
"""The number that stands for a partition's first offset in the JSON of options."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST}

Offsets = dict[TopicPartition, int]

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMESTAMPS_EXAMPLE = '{"topicA":{"0":1700000000000,"1":1700000000000}}'
_CHECKPOINT_EXAMPLE = '{"topicA":{"0":23,"1":345}}'
_LIMITS_EXAMPLE = '{"topicA":1000,"topicB":50}'
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""A pattern that matches every topic name that Kafka allows."""


def to_json_dict(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets in the form of the JSON of Spark's connector, sorted."""
    result: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        result.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return result


def as_json(offsets: Mapping[TopicPartition, int]) -> str:
    """The JSON of `to_json_dict` as text, for error messages."""
    return json.dumps(to_json_dict(offsets))


def from_json_dict(given: object, where: str) -> Offsets:
    """Read offsets (>= 0) from a checkpoint, in the JSON form of Spark's Kafka connector.

    Error messages call the offsets ``where``. The JSON form has no version number. If a later klog
    changed the form, it would mark the new form by keys that are no topic names, and this function
    refuses such keys.

    :raises OffsetError: if ``given`` does not have this form
    """
    try:
        offsets = _read_map(given, where, _CHECKPOINT_EXAMPLE)
        for partition, offset in offsets.items():
            if not _TOPIC.fullmatch(partition.topic):
                raise OffsetError(
                    f"{where} names {partition.topic!r}, which is not a valid topic name"
                )
            if offset < 0:
                raise OffsetError(f"{where} has offset {offset} for {partition}")
    except OffsetError as error:
        raise OffsetError(
            f"{error}; klog {__version__} cannot go on from this checkpoint (is this another "
            "query's checkpointLocation?): if a newer klog wrote it, run that one, else choose "
            "another checkpointLocation"
        ) from None
    return offsets


def read_offsets(text: str, name: str) -> tuple[Offsets, dict[str, int]]:
    """Parse the value of the option ``name``: offsets by partition, and offsets by topic.

    A partition's offset may be -2 (earliest) or -1 (latest). The second map has the topics for
    which the option gives the word earliest or latest (as -2 or -1) in place of partitions; it
    applies to all partitions of the topic.

    :raises OffsetError: naming the option and what was given
    """
    given = _load(text, name, _OFFSETS_EXAMPLE)
    topics: dict[str, int] = {}
    if isinstance(given, dict):
        words = {topic: word for topic, word in given.items() if isinstance(word, str)}
        topics = {topic: _word(word, topic, name) for topic, word in words.items()}
        given = {topic: rest for topic, rest in given.items() if topic not in topics}
    offsets = _read_map(given, name, _OFFSETS_EXAMPLE)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise OffsetError(
                f"{name} has offset {offset} for {partition}; expected -2 (earliest), "
                "-1 (latest), or 0 and more"
            )
    if not offsets and not topics:
        raise OffsetError(f"{name} names no partition; expected JSON like {_OFFSETS_EXAMPLE}")
    return offsets, topics


def _word(word: str, topic: str, name: str) -> int:
    offset = _WORDS.get(word.strip().lower())
    if offset is None:
        raise OffsetError(
            f'{name} has {word!r} for topic {topic}; expected "earliest", "latest", or offsets by '
            f"partition, as in {_OFFSETS_EXAMPLE}"
        )
    return offset


def read_timestamps(text: str, name: str) -> dict[TopicPartition, int]:
    """Read the value of option ``name``: for each partition a timestamp in milliseconds since 1970.

    :raises OffsetError: naming the option and what was given
    """
    given = _load(text, name, _TIMESTAMPS_EXAMPLE)
    timestamps = _read_map(given, name, _TIMESTAMPS_EXAMPLE)
    for partition, timestamp_ms in timestamps.items():
        if timestamp_ms < 0:
            raise OffsetError(
                f"{name} has timestamp {timestamp_ms} for {partition}; expected milliseconds since "
                f"1970, as in {_TIMESTAMPS_EXAMPLE}"
            )
    if not timestamps:
        raise OffsetError(f"{name} names no partition; expected JSON like {_TIMESTAMPS_EXAMPLE}")
    return timestamps


def read_topic_limits(text: str, name: str) -> dict[str, int]:
    """Read the value of option ``name``: for each topic the largest number of offsets that a
    micro-batch reads, 1 or more.

    :raises OffsetError: naming the option and what was given
    """
    given = _load(text, name, _LIMITS_EXAMPLE)
    is_map = isinstance(given, dict) and given
    if not is_map or not all(_is_int(n) and 0 < n <= _OFFSET_MAX for n in given.values()):
        raise OffsetError(
            f"{name} is {text!r}; expected whole numbers from 1 to {_OFFSET_MAX} by topic, "
            f"as in {_LIMITS_EXAMPLE}"
        )
    return dict(given)


def read_assignment(text: str) -> frozenset[TopicPartition]:
    """The partitions that option ``assign`` names.

    :raises OffsetError: if ``text`` is not JSON that names partitions; the error quotes the fault
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
                    f"assign has partition {number!r} of topic {topic!r}; expected a whole number "
                    f"from 0 to {_PARTITION_MAX}"
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


def _read_map(given: object, where: str, example: str) -> Offsets:
    offsets: Offsets = {}
    if not isinstance(given, dict):
        raise OffsetError(f"{where} is {given!r}; expected JSON like {example}")
    for topic, partitions in given.items():
        if not isinstance(topic, str) or not isinstance(partitions, dict):
            raise OffsetError(f"{where} is {given!r}; expected JSON like {example}")
        for number, offset in partitions.items():
            if not _is_number_text(number) or not _is_int(offset) or offset > _OFFSET_MAX:
                raise OffsetError(
                    f"{where} has {number!r}: {offset!r} for topic {topic!r}; expected a partition "
                    f"number as text and a whole number of at most {_OFFSET_MAX}, as in {example}"
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
