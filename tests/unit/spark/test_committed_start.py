"""startingOffsets=committed: which offsets of a group a query can begin at."""

from collections.abc import Iterable, Mapping

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import DataLost
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.bound_resolution import resolve_start

_P = TopicPartition("t", 0)


class _Lookup:
    """A partition that ends at offset 12. A transaction is open from 5 on; the group is at 9."""

    def __init__(self, options: Options) -> None:
        self._committed_end = 5 if options.read_committed else 12

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 0)

    def latest(
        self, partitions: Iterable[TopicPartition], _: Mapping[TopicPartition, int]
    ) -> Offsets:
        return dict.fromkeys(partitions, self._committed_end)

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 12)

    def at_times(self, _: Mapping[TopicPartition, int]) -> Offsets:
        return {}

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, {"behind": 9, "beyond": 13}[group_id])


def _start(group_id: str, isolation_level: str) -> Offsets:
    options = read_options(
        {
            "kafka.bootstrap.servers": "nowhere:1",
            "subscribe": "t",
            "startingOffsets": "committed",
            "commitGroupId": group_id,
            "kafka.isolation.level": isolation_level,
        }
    )
    return resolve_start(_Lookup(options), options, frozenset({_P}))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_group_behind_an_open_transaction_keeps_its_place(isolation_level: str) -> None:
    assert _start("behind", isolation_level) == {_P: 9}


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_group_beyond_the_last_record_has_lost_its_place(isolation_level: str) -> None:
    with pytest.raises(DataLost, match="t-0 at 13, but the partition has offsets 0 to 12"):
        _start("beyond", isolation_level)
