"""Which offsets a move changes."""

import pytest

from pyspark_klog.checkpoint.errors import MoveRefused
from pyspark_klog.checkpoint.log_files import BatchEnds, parse_batch_ends
from pyspark_klog.checkpoint.moves import (
    LogRange,
    Move,
    Place,
    check_in_log,
    choose_partitions,
    place_of,
    plan_moves,
    with_moves,
)
from pyspark_klog.ids import TopicPartition

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
B0 = TopicPartition("b", 0)
LOGS = {A0: LogRange(0, 9), A1: LogRange(3, 9), B0: LogRange(0, 4)}


def ends(*sources: str) -> BatchEnds:
    return parse_batch_ends("\n".join(["v1", "{}", *sources]), "offsets/0")


TWO_SOURCES = ends('{"a":{"0":5,"1":6}}', '{"logOffset":1}', '{"a":{"0":2},"b":{"0":1}}')


@pytest.mark.parametrize(
    ("offset", "log", "place"),
    [
        (3, LogRange(3, 9), Place.IN_LOG),
        (9, LogRange(3, 9), Place.IN_LOG),
        (2, LogRange(3, 9), Place.DELETED),
        (10, LogRange(3, 9), Place.BEYOND_END),
        (3, None, Place.MISSING),
    ],
)
def test_the_place_of_an_offset(offset: int, log: LogRange | None, place: Place) -> None:
    assert place_of(offset, log) is place


def test_all_sources_with_the_topic_are_moved_and_others_are_kept() -> None:
    chosen = choose_partitions(TWO_SOURCES, {"a": None}, LOGS)
    moves = plan_moves(TWO_SOURCES, chosen, {A0: 9, A1: 6})
    assert moves == [Move("0", A0, 5, 9), Move("2", A0, 2, 9), Move("2", A1, None, 6)]
    texts = [source.text for source in with_moves(TWO_SOURCES, moves).sources]
    assert texts == [
        '{"a":{"0":9,"1":6}}',
        '{"logOffset":1}',
        '{"a":{"0":9,"1":6},"b":{"0":1}}',
    ]


def test_a_partition_that_does_not_exist_any_more_is_removed() -> None:
    read = ends('{"a":{"0":5,"2":6}}')
    chosen = choose_partitions(read, {}, LOGS)
    moves = plan_moves(read, chosen, {A0: 5})
    assert moves == [Move("0", A2, 6, None)]
    assert with_moves(read, moves).sources[0].text == '{"a":{"0":5}}'


def test_a_new_partition_is_moved_only_if_it_is_named() -> None:
    # The query may have the option assign, and then does not read the partition.
    read = ends('{"a":{"0":5}}')
    chosen = choose_partitions(read, {}, LOGS)
    assert (chosen.moved, chosen.unread) == ({A0}, {A1})
    chosen = choose_partitions(read, {"a": frozenset({1})}, LOGS)
    assert plan_moves(read, chosen, {A1: 9}) == [Move("0", A1, None, 9)]


@pytest.mark.parametrize(
    ("read", "selection", "fault"),
    [
        (ends("12"), {}, "the checkpoint has no offsets of topics"),
        (TWO_SOURCES, {"c": None}, "has no offsets of c; expected topics of the query: a, b"),
        (ends('{"gone":{"0":5}}'), {}, "topic gone does not exist on these brokers: create it"),
        (TWO_SOURCES, {"b": frozenset({1})}, "b-1 does not exist; expected partitions from 0 to 0"),
    ],
)
def test_a_choice_of_what_does_not_exist_is_refused(
    read: BatchEnds, selection: dict[str, frozenset[int] | None], fault: str
) -> None:
    with pytest.raises(MoveRefused) as error:
        choose_partitions(read, selection, LOGS)
    assert fault in str(error.value)


def test_a_given_offset_outside_of_its_log_is_refused() -> None:
    check_in_log({A1: 3, B0: 4}, LOGS)
    with pytest.raises(MoveRefused, match=r"offset 2 of a-1 .* expected 3 .* to 9"):
        check_in_log({A1: 2}, LOGS)
