"""Where a read begins and ends according to its options. Pure: no broker is asked here.

The start and the end have three options each, of which the first given one counts: a timestamp for
all partitions, a timestamp for each partition, offsets. `planning/bound_resolution.py` resolves
bounds to the offsets of a cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError, OptionError
from pyspark_klog.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    as_json,
    read_offsets,
    read_timestamps,
)
from pyspark_klog.spark.options.rows import read_optional

Side = Literal["starting", "ending"]

COMMITTED = "committed"
"""The value of startingOffsets that stands for a consumer group's offsets."""


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """A read begins or ends, in each partition, at the first record that is not older than
    ``timestamp_ms`` (ms since 1970)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """A read begins or ends, in each partition, at the first record that is not older than the
    partition's timestamp (ms since 1970)."""

    timestamps_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """A read begins at the offsets that the consumer group of option commitGroupId has
    committed."""


@dataclass(frozen=True, slots=True)
class ByTopic:
    """A read begins or ends at EARLIEST or LATEST in all partitions of the topics in ``topics``,
    and at the offsets in ``offsets`` in the partitions of other topics."""

    topics: Mapping[str, int]
    offsets: Offsets

    def for_partitions(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The bound of each partition: its topic's word (EARLIEST, LATEST), else its offset."""
        whole = {p: self.topics[p.topic] for p in partitions if p.topic in self.topics}
        return self.offsets | whole


Bound = int | Offsets | ByTopic | AtTimestamp | AtTimestamps | AtCommitted
"""Where a query begins or ends to read: EARLIEST or LATEST in all partitions, an offset for each
partition, EARLIEST or LATEST for some topics, a time, or the committed offsets of a group."""


def option_of(bound: Bound, side: Side) -> str:
    """The name of the option that gave a bound of the start or the end (``side``)."""
    if isinstance(bound, AtTimestamp):
        return f"{side}Timestamp"
    return f"{side}OffsetsByTimestamp" if isinstance(bound, AtTimestamps) else f"{side}Offsets"


def numbers_of(bound: Bound | None) -> Offsets:
    """The offsets that a bound names as numbers, without EARLIEST and LATEST; empty for a time or a
    group's offsets."""
    offsets = bound.offsets if isinstance(bound, ByTopic) else bound
    return {p: o for p, o in offsets.items() if o >= 0} if isinstance(offsets, dict) else {}


def read_bound(options: Mapping[str, str], side: Side) -> Bound | None:
    """The bound that the options give for the start or the end (``side``); None without an option.

    Each side has three options, of which the first given one counts.

    :raises OffsetError, OptionError: naming what was given and what is expected
    """
    timestamp_ms = read_optional(options, f"{side}Timestamp", int)
    if timestamp_ms is not None:
        return AtTimestamp(timestamp_ms)
    name = f"{side}OffsetsByTimestamp"
    text = options.get(name.lower())
    if text is not None:
        return AtTimestamps(read_timestamps(text, name))
    name = f"{side}Offsets"
    text = options.get(name.lower())
    return None if text is None else _offsets(text, name)


def _offsets(text: str, name: str) -> Bound:
    word = text.strip().lower()
    is_ending = name == "endingOffsets"
    if word == "latest":
        return LATEST
    if word == "earliest":
        if is_ending:
            raise OptionError("endingOffsets is earliest; expected latest or JSON with offsets")
        return EARLIEST
    if word == COMMITTED and not is_ending:
        return AtCommitted()
    if not word.startswith("{"):
        words = "latest" if is_ending else "earliest, latest, committed"
        raise OffsetError(
            f'{name} is {text!r}; expected {words}, or JSON like {{"topicA":{{"0":23,"1":-1}}}}'
        )
    offsets, topics = read_offsets(text, name)
    if is_ending and EARLIEST in topics.values():
        raise OptionError(f"endingOffsets has earliest; expected latest or offsets: {text}")
    if is_ending and EARLIEST in offsets.values():
        raise OptionError(
            f"endingOffsets has -2 (earliest); expected -1 (latest) or offsets: {as_json(offsets)}"
        )
    return ByTopic(topics, offsets) if topics else offsets


def can_move(starting: Bound, *, latest_without_match: bool) -> bool:
    """Whether the bound ``starting`` could mean other offsets if it were resolved again later, even
    if no record is deleted: ``latest``, or a group's committed offsets. With
    ``latest_without_match`` a time could, too: a partition without a record at or after that time
    is then read from its end."""
    if isinstance(starting, dict):
        return LATEST in starting.values()
    if isinstance(starting, ByTopic):
        return LATEST in {*starting.offsets.values(), *starting.topics.values()}
    if isinstance(starting, AtCommitted):
        return True
    if isinstance(starting, AtTimestamp | AtTimestamps):
        return latest_without_match
    return starting == LATEST


def check_bounds(
    starting: Bound | None,
    ending: Bound | None,
    assigned: frozenset[TopicPartition] | None,
    topics: tuple[str, ...],
) -> None:
    """Check the bounds as far as that is possible without asking a broker.

    :raises OffsetError: if a bound does not name exactly the topics or partitions that the options
        select, or a partition's end is before its start
    """
    start, end = _by_partition(starting), _by_partition(ending)
    sides: tuple[tuple[Side, Bound | None, Mapping[TopicPartition, int] | None], ...] = (
        ("starting", starting, start),
        ("ending", ending, end),
    )
    for side, bound, given in sides:
        if isinstance(bound, ByTopic):
            _check_topics(bound, option_of(bound, side), assigned, topics)
        if bound is None or given is None:
            continue
        name = option_of(bound, side)
        if assigned is not None:
            check_partitions(given, assigned, name)
        named = sorted({p.topic for p in given})
        if topics and named != sorted(topics):
            raise OffsetError(
                f"{name} has topics {named}; expected exactly those of subscribe, {sorted(topics)}"
            )
    if start is None or end is None or starting is None or ending is None:
        return
    if type(starting) is not type(ending):
        return
    names = option_of(starting, "starting"), option_of(ending, "ending")
    if start.keys() != end.keys():
        extra = f"which {names[0]} does not name"
        check_partitions(end, frozenset(start), names[1], extra_is=extra)
    wrong = [p for p in sorted(start) if 0 <= end[p] < start[p]]
    if wrong:
        pairs = ", ".join(f"{p} from {start[p]} to {end[p]}" for p in wrong)
        raise OffsetError(
            f"a batch would end before it begins: {pairs}; check {names[0]} and {names[1]}"
        )


def _check_topics(
    bound: ByTopic,
    name: str,
    assigned: frozenset[TopicPartition] | None,
    topics: tuple[str, ...],
) -> None:
    expected = sorted(topics) if assigned is None else sorted({p.topic for p in assigned})
    named = sorted({*bound.topics, *(p.topic for p in bound.offsets)})
    if expected and named != expected:
        option = "subscribe" if assigned is None else "assign"
        raise OffsetError(
            f"{name} has topics {named}; expected exactly those of {option}, {expected}"
        )
    if assigned is not None:
        check_partitions(bound.for_partitions(assigned), assigned, name)


def _by_partition(bound: Bound | None) -> Mapping[TopicPartition, int] | None:
    if isinstance(bound, AtTimestamps):
        return bound.timestamps_ms
    return bound if isinstance(bound, dict) else None


def check_partitions(
    given: Mapping[TopicPartition, int],
    expected: frozenset[TopicPartition],
    name: str,
    *,
    extra_is: str = "which is not read",
) -> None:
    """Check that offsets or timestamps are given for exactly the partitions that are read.

    ``extra_is`` is the clause of the error's text on superfluous partitions.

    :raises OffsetError: naming missing and superfluous partitions, with a valid value
    """
    missing = sorted(expected - given.keys())
    extra = sorted(given.keys() - expected)
    if not missing and not extra:
        return
    parts = [f"without {', '.join(map(str, missing))}"] if missing else []
    parts += [f"with {', '.join(map(str, extra))}, {extra_is}"] if extra else []
    if name.endswith("ByTimestamp"):
        value = max(given.values(), default=0)
    else:
        value = LATEST if name.startswith("ending") else EARLIEST
    raise OffsetError(
        f"{name} is given {' and '.join(parts)}; expected every partition that is read, as in "
        f"{as_json(dict.fromkeys(expected, value))}"
    )
