"""Limits of a micro-batch: a shared maximum, a minimum with a maximum delay, times as text."""

import pytest

from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.rows import read_option
from pyspark_klog.spark.planning.byte_limits import SAMPLES_AT_ONCE, ByteRates
from pyspark_klog.spark.planning.group_start import start_of
from pyspark_klog.spark.planning.limits import MinimumWait, prorate
from pyspark_klog.spark.planning.samples import parse_sample

_P = TopicPartition("t", 0)


@pytest.mark.parity("source behaviour: Long.Max limit")
def test_the_largest_limit_takes_all_and_overflows_nothing() -> None:
    most = 2**63 - 1
    assert prorate(most, {_P: 0}, {_P: most}) == {_P: most}
    assert prorate(most - 1, {_P: 0}, {_P: most}) == {_P: most - 1}
    several = {TopicPartition("t", n): 2**62 for n in range(3)}
    taken = prorate(most, dict.fromkeys(several, 0), several)
    assert sum(taken.values()) <= most
    assert min(taken.values()) == most * 2**62 // (3 * 2**62)


def test_the_first_batch_fires_and_then_the_minimum_counts() -> None:
    patience = MinimumWait(10, 1_000)
    assert patience.fires(0, 5_000)
    assert not patience.fires(9, 5_999)
    assert patience.fires(10, 5_999)
    assert not patience.fires(9, 6_998)
    assert patience.fires(9, 6_999), "the delay counts from the last batch that fired"
    assert not patience.fires(0, 7_000)


def test_a_delay_of_nothing_is_no_wait() -> None:
    patience = MinimumWait(10, 0)
    assert patience.fires(0, 1) and patience.fires(0, 1)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("15m", 900_000),
        ("90s", 90_000),
        ("1h", 3_600_000),
        (" 2MIN ", 120_000),
        ("250ms", 250),
        ("2500us", 2),
        ("1d", 86_400_000),
        ("30", 30),
        ("0s", 0),
    ],
)
def test_durations_are_written_as_sparks_configuration_has_them(
    text: str, expected_ms: int
) -> None:
    assert read_option({"maxtriggerdelay": text}, "maxTriggerDelay", int) == expected_ms


@pytest.mark.parametrize(
    "text", ["", "m", "1.5m", "-1s", "5 minutes", "1w", "9" * 30 + "d", "\u0661s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(OptionError, match=r"maxTriggerDelay is .* expected a whole number and a u"):
        read_option({"maxtriggerdelay": text}, "maxTriggerDelay", int)


def test_a_duration_that_is_not_given() -> None:
    assert read_option({}, "maxTriggerDelay", int) == 900_000


def test_backlogs_of_half_the_limit_need_no_samples_once_all_are_known() -> None:
    rates = ByteRates()
    rates.learn(_P, 10, 1)
    assert rates.to_sample(100, {_P: 0}, {_P: 5}) == []
    assert rates.to_sample(100, {_P: 0}, {_P: 6}) == [_P]


def test_known_partitions_take_turns_to_be_sampled() -> None:
    rates = ByteRates()
    several = [TopicPartition("t", number) for number in range(SAMPLES_AT_ONCE * 3)]
    for each in several:
        rates.learn(each, 10, 1)
    start, end = dict.fromkeys(several, 0), dict.fromkeys(several, 100)
    sampled = [each for _ in range(3) for each in rates.to_sample(100, start, end)]
    assert sorted(sampled) == several


@pytest.mark.parametrize(
    ("offset", "begins_at", "is_lost"), [(2, 3, 1), (3, 3, 0), (9, 9, 0), (10, 3, 1)]
)
def test_a_group_may_be_at_either_end_of_a_partition(
    offset: int, begins_at: int, is_lost: int
) -> None:
    start = start_of({_P: offset}, {_P: 3}, {_P: 9})
    assert (start.offsets, len(start.lost)) == ({_P: begins_at}, is_lost)


def test_a_sample_counts_the_offsets_of_its_whole_first_batch() -> None:
    """The broker sends a batch whole, also for an offset in its middle: so are its bytes."""
    builder = BatchBuilder(10)
    for number in range(5):
        builder.append(None, b"v", number)
    sample = parse_sample(memoryview(builder.build()), 13)
    assert sample is not None
    assert sample.offsets == 5
