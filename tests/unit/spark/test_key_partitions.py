"""Option keys: the partitions of given keys, and the bounds of these partitions alone."""

from collections.abc import Iterable, Mapping

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.partitioner import partition_for_key
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.bound_resolution import resolve_end, resolve_start
from pyspark_klog.spark.planning.key_partitions import partitions_of_keys

_T = frozenset(TopicPartition("t", n) for n in range(8))
_U = frozenset(TopicPartition("u", n) for n in range(3))
_KEYS = [b"customer-%d" % n for n in range(3)]


@pytest.mark.parity("beyond: 4 keys", "own option: keys")
def test_the_partition_of_every_key_is_read_and_no_other() -> None:
    expected = {TopicPartition("t", partition_for_key(key, 8)) for key in _KEYS}
    expected |= {TopicPartition("u", partition_for_key(key, 3)) for key in _KEYS}
    assert partitions_of_keys(_T | _U, _KEYS, {"t": 8, "u": 3}) == expected
    assert len(expected) < len(_T | _U)


def test_partitions_of_a_topic_of_unknown_size_are_all_read() -> None:
    assert partitions_of_keys(_T | _U, _KEYS, {"t": 0}) == _T | _U
    assert partitions_of_keys(_T, None, {"t": 8}) == _T


def test_an_assigned_partition_without_any_of_the_keys_is_not_read() -> None:
    (key,) = _KEYS[:1]
    other = TopicPartition("t", (partition_for_key(key, 8) + 1) % 8)
    assert partitions_of_keys(frozenset({other}), [key], {"t": 8}) == frozenset()


class _Lookup:
    """Knows the offsets of partition 0 alone: a question for another partition fails."""

    def earliest(self, partitions: Iterable[TopicPartition], /) -> Offsets:
        return {p: {TopicPartition("t", 0): 3}[p] for p in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], _known: Mapping[TopicPartition, int], /
    ) -> Offsets:
        return {p: {TopicPartition("t", 0): 9}[p] for p in partitions}

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int], /) -> Offsets:
        return {p: {TopicPartition("t", 0): 5}[p] for p in timestamps_ms}

    def committed(self, _group_id: str, _partitions: Iterable[TopicPartition], /) -> Offsets:
        raise AssertionError("no group is asked for")


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({}, 3, 9),
        ({"startingTimestamp": "1", "endingTimestamp": "2"}, 5, 5),
        (
            {
                "startingOffsets": '{"t":{"0":-2,"1":4}}',
                "endingOffsets": '{"t":{"0":-1,"1":8}}',
            },
            3,
            9,
        ),
        ({"startingOffsetsByTimestamp": '{"t":{"0":1,"1":1}}'}, 5, 9),
    ],
)
def test_only_partitions_that_are_read_get_bounds(
    options: dict[str, str], start: int, end: int
) -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **options}
    read_batch = read_options(given).for_batch()
    there = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    read = frozenset({TopicPartition("t", 0)})
    lookup = _Lookup()
    assert resolve_start(lookup, read_batch, there, read) == {TopicPartition("t", 0): start}
    assert resolve_end(lookup, read_batch, there, read) == {TopicPartition("t", 0): end}


def test_offsets_name_every_partition_whether_it_is_read_or_not() -> None:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    options = read_options({**given, "startingOffsets": '{"t":{"0":1}}'}).for_batch()
    there = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
    with pytest.raises(OffsetError, match="without t-1"):
        resolve_start(_Lookup(), options, there, frozenset({TopicPartition("t", 0)}))
