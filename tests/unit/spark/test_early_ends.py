"""Batches that end before they begin, and the transactions that make them."""

from collections.abc import Iterable, Mapping

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.open_transactions import describe_early_ends, ends_before_start

_P0, _P1, _P2 = (TopicPartition("t", number) for number in range(3))


class _Ends:
    """Last stable offsets and high watermarks of partitions."""

    def __init__(self, stable: dict[TopicPartition, int], high: dict[TopicPartition, int]) -> None:
        self.stable = stable
        self.high = high

    def latest(
        self, partitions: Iterable[TopicPartition], _known: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return {p: self.stable[p] for p in partitions}

    def open_transactions(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str]:
        return {p: f"{p} waits at {end}" for p, end in ends.items() if self.high[p] >= start[p]}


def test_only_an_end_that_is_the_last_stable_offset_is_due_to_a_transaction() -> None:
    start = {_P0: 9, _P1: 9, _P2: 0}
    ends = _Ends({_P0: 5, _P1: 5, _P2: 5}, {_P0: 9, _P1: 9, _P2: 9})
    # The end of _P1 was given by an option.
    assert ends_before_start(ends, start, {_P0: 5, _P1: 3, _P2: 5}) == {_P0: "t-0 waits at 5"}
    ends.stable[_P0] = 7
    assert ends_before_start(ends, start, {_P0: 5, _P1: 3, _P2: 5}) == {}


def _batch(**given: str) -> Options:
    return read_options({"kafka.bootstrap.servers": "no:1", "subscribe": "t", **given}).for_batch()


def test_each_cause_of_an_early_end_has_its_remedy() -> None:
    options = _batch(startingOffsets='{"t":{"0":9,"1":9,"2":0}}')
    start, end = {_P0: 9, _P1: 9, _P2: 0}, {_P0: 5, _P1: 3, _P2: 5}
    again = "nothing is lost: run the query again when the transaction has ended (klog "
    again += "transactions list shows it)"
    check = (
        "startingOffsets is beyond the end: give offsets up to the end, and check the topic and "
    )
    check += "kafka.bootstrap.servers"
    both = "a batch would end before it begins: t-0 from 9 to 5, t-1 from 9 to 3"
    assert describe_early_ends(options, start, end, {}) == f"{both}; {check}"
    held = {_P0: "t-0 waits"}
    assert describe_early_ends(options, start, end, held) == f"{both}; t-0 waits; {again}; {check}"
    held |= {_P1: "t-1 waits"}
    assert (
        describe_early_ends(options, start, end, held) == f"{both}; t-0 waits, t-1 waits; {again}"
    )


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"startingOffsets": '{"t":{"0":9}}'}, "startingOffsets is beyond the end: give offsets"),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":-1}}'},
            "startingOffsets is beyond the end: give offsets up to the end",
        ),
        (
            {"endingOffsets": '{"t":{"0":5}}'},
            "endingOffsets is before the first offset, since retention or DeleteRecords deleted",
        ),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingTimestamp": "1"},
            "check startingOffsets and endingTimestamp",
        ),
        (
            {"startingTimestamp": "2", "endingTimestamp": "1"},
            "check startingTimestamp and endingTimestamp",
        ),
        (
            {
                "startingOffsets": "committed",
                "commitGroupId": "g",
                "endingOffsets": '{"t":{"0":5}}',
            },
            "check startingOffsets and endingOffsets",
        ),
    ],
)
def test_an_early_end_names_the_option_at_fault(given: dict[str, str], advice: str) -> None:
    text = describe_early_ends(_batch(**given), {_P0: 9}, {_P0: 5}, {})
    assert text.startswith(f"a batch would end before it begins: t-0 from 9 to 5; {advice}")
