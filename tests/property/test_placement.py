"""Placement of replicas: properties for any brokers, racks and numbers."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.controller.decisions.placement import Assignment, place_replicas, start_of_more
from pyspark_klog.ids import BrokerId


class Asked(NamedTuple):
    racks: dict[BrokerId, str | None]
    partitions: int
    replication_factor: int
    start: int
    shift: int
    first_partition: int


@st.composite
def questions(draw: st.DrawFn, rack: st.SearchStrategy[str | None]) -> Asked:
    brokers = draw(st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True))
    racks = {BrokerId(broker): draw(rack) for broker in brokers}
    return Asked(
        racks,
        draw(st.integers(1, 150)),
        draw(st.integers(1, len(racks))),
        draw(st.integers(0, len(racks) - 1)),
        draw(st.integers(0, len(racks) - 1)),
        draw(st.integers(0, 40)),
    )


def place(asked: Asked) -> Assignment:
    return place_replicas(
        asked.racks,
        asked.partitions,
        asked.replication_factor,
        start=asked.start,
        shift=asked.shift,
        first_partition=asked.first_partition,
    )


RACKS = st.sampled_from(("a", "b", "c"))
ANY = questions(RACKS) | questions(st.none()) | questions(RACKS | st.none())


@given(ANY)
def test_each_partition_has_its_replicas_on_different_brokers(asked: Asked) -> None:
    placed = place(asked)
    assert len(placed) == asked.partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == asked.replication_factor
        assert set(replicas) <= set(asked.racks)


@given(ANY)
def test_leaders_go_round(asked: Asked) -> None:
    leaders = Counter(replicas[0] for replicas in place(asked))
    most = max(leaders.values())
    least = min(leaders[broker] for broker in asked.racks)
    assert most - least <= 1


@given(questions(st.none()))
def test_replicas_are_spread_evenly_over_whole_rounds(asked: Asked) -> None:
    count = len(asked.racks)
    whole = asked._replace(partitions=count * max(1, count - 1))
    held = Counter(broker for replicas in place(whole) for broker in replicas)
    assert len(set(held.values())) == 1


@given(questions(RACKS))
def test_replicas_are_in_as_many_racks_as_there_can_be(asked: Asked) -> None:
    racks = len(set(asked.racks.values()))
    for replicas in place(asked):
        found = {asked.racks[broker] for broker in replicas}
        assert len(found) == min(racks, asked.replication_factor)


@given(questions(RACKS | st.none()))
def test_racks_count_only_if_every_broker_has_one(asked: Asked) -> None:
    if None in asked.racks.values():
        without = asked._replace(racks=dict.fromkeys(asked.racks))
        assert place(asked) == place(without)


@given(ANY)
def test_more_partitions_of_a_topic_go_on_as_it_began(asked: Asked) -> None:
    """Kafka does so, too: if the shift was the start, and the brokers did not change meanwhile."""
    if set(asked.racks.values()) != {None}:
        return
    whole = asked._replace(shift=asked.start, first_partition=0)
    placed = place(whole)
    half = len(placed) // 2
    first = placed[0][0]
    start = start_of_more(asked.racks, first)
    assert start == asked.start
    added = place_replicas(
        asked.racks,
        len(placed) - half,
        asked.replication_factor,
        start=start,
        shift=start,
        first_partition=half,
    )
    assert [row[0] for row in added] == [row[0] for row in placed[half:]]


def test_the_start_is_the_next_broker_without_the_leader_of_partition_0() -> None:
    racks = dict.fromkeys(map(BrokerId, (9, 2, 5)))
    assert [start_of_more(racks, BrokerId(leader)) for leader in (1, 2, 3, 5, 8, 9, 10)] == [
        *(0, 0, 1, 1, 2, 2, 0)
    ]
