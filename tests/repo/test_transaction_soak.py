"""The soak of transactions: its faults, and its reports of lost, doubled and reordered rows."""

from collections.abc import Callable
from itertools import islice

import pytest

from tests.soak.transactions.check import Input, Output, output_of, problems_of, value_of
from tests.soak.transactions.plan import COPIES, Hit, faults

INPUTS = [
    Input(partition, offset, b"key-%d" % (2 * partition + offset % 2), 100 * partition + offset)
    for partition in range(2)
    for offset in range(6)
]


def _copied() -> dict[int, list[Output]]:
    """Return the output of a right copy: each key in one partition, in order."""
    found: dict[int, list[Output]] = {0: [], 1: []}
    for source in INPUTS:
        partition = int(source.key[-1:]) % 2
        place = (partition, 3 * len(found[partition]))
        found[partition].append(output_of(*place, source.key, value_of(source)))
    return found


def test_a_right_copy_has_no_problem_and_another_order_of_keys_is_none() -> None:
    assert problems_of(INPUTS, _copied()) == []
    found = _copied()
    # Records of the keys 0 and 2 change places: each key is still in order.
    first, third = found[0][:3], found[0][3:]
    found[0] = [record for pair in zip(third, first, strict=True) for record in pair]
    assert problems_of(INPUTS, found) == []


def _double(found: dict[int, list[Output]]) -> None:
    found[0].append(found[0][-1]._replace(offset=99))


def _lose(found: dict[int, list[Output]]) -> None:
    found[1].pop(2)


def _swap(found: dict[int, list[Output]]) -> None:
    found[0][0], found[0][1] = found[0][1], found[0][0]


def _change_number(found: dict[int, list[Output]]) -> None:
    record = found[0][0]
    found[0][0] = record._replace(source=record.source._replace(number=7))


def _change_key(found: dict[int, list[Output]]) -> None:
    record = found[0][0]
    found[0][0] = record._replace(source=record.source._replace(key=b"key-other"))


def _invent(found: dict[int, list[Output]]) -> None:
    found[1].append(output_of(1, 99, b"key-9", b"1 6 106"))


def _take_apart(found: dict[int, list[Output]]) -> None:
    found[1].append(found[0].pop()._replace(partition=1, offset=99))


@pytest.mark.parametrize(
    ("mutate", "problem"),
    [
        (_double, "1 inputs copied more than once: 1@4"),
        (_lose, "1 inputs lost: 0@5"),
        (_swap, "1 outputs behind a later one of their key: 0@0"),
        (_change_number, "1 inputs with another key or number: 0@0"),
        (_change_key, "1 inputs with another key or number: 0@0"),
        (_invent, "1 records that are no input: 1@6"),
        (_take_apart, "1 keys in more than one partition: b'key-2'"),
    ],
)
def test_what_is_wrong_is_named(
    mutate: Callable[[dict[int, list[Output]]], None], problem: str
) -> None:
    found = _copied()
    mutate(found)
    assert problems_of(INPUTS, found) == [problem]


def test_nothing_copied_is_everything_lost_and_a_foreign_value_is_refused() -> None:
    (problem,) = problems_of(INPUTS, {})
    assert problem == "12 inputs lost: 0@0, 0@1, 0@2, 0@3, 0@4, ..."
    with pytest.raises(ValueError, match="unpack"):
        output_of(0, 0, b"key", b"not what a copy writes")


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_hits_the_same_again_and_every_kind_at_once(seed: int) -> None:
    plan = list(islice(faults(seed, 2.0), 200))
    assert plan == list(islice(faults(seed, 2.0), 200))
    assert plan != list(islice(faults(seed + 1, 2.0), 200))
    assert {fault.hit for fault in plan[:3]} == set(Hit)
    assert {fault.copy for fault in plan} == set(range(COPIES))
    assert 1.8 < sum(fault.after_s for fault in plan) / len(plan) < 2.2
    hits = [fault.hit for fault in plan]
    assert hits.count(Hit.KILL) > hits.count(Hit.PAUSE) > 10
    # Longer than a session, and some longer than a transaction may be open.
    pauses = [fault.away_s for fault in plan if fault.hit is Hit.PAUSE]
    assert min(pauses) > 3 and max(pauses) > 8
