"""The soak of a cluster: its plan, and its reports of lost, doubled and differing records."""

import struct
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from tests.soak.cluster.cluster_view import Sight
from tests.soak.cluster.java_clients import Run, ends_of, problems_of_reading, problems_of_writing
from tests.soak.cluster.plan import SESSION_S, Fault, Kind, faults, long_plan, short_plan
from tests.soak.cluster.replicas import partitions_of, problems_of_replicas
from tests.soak.cluster.soak import problems_of_order
from tests.soak.records import Record
from tests.soak.transactions.check import Input
from tests.soak.transactions.librdkafka_copy import may_call_again, must_abort

ALL = frozenset((1, 2, 3))


# --- the plan ------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_each_cycle_has_every_kind_and_a_seed_gives_the_same_again(seed: int) -> None:
    for cycle in islice(faults(seed), 3):
        assert sorted(fault.kind.name for fault in cycle) == sorted(kind.name for kind in Kind)
        assert all(fault.broker != fault.other for fault in cycle)
        assert any(fault.rests for fault in cycle)
        past = [fault.seconds for fault in cycle if "past" in fault.kind.value]
        assert len(past) == 5 and min(past) > SESSION_S
    assert not all(fault.rests for cycle in islice(faults(seed), 3) for fault in cycle)
    assert list(islice(faults(seed), 3)) == list(islice(faults(seed), 3))
    assert next(faults(seed)) != next(faults(seed + 1))


def test_a_plan_ends_with_its_time_and_has_every_kind_however_short_it_is() -> None:
    def planned(minutes: float) -> list[Fault]:
        clock_s = [50.0]
        found = []
        for fault in long_plan(minutes, 3, lambda: clock_s[0]):
            found.append(fault)
            clock_s[0] += 12
        return found

    assert {fault.kind for fault in planned(0)} == set(Kind)
    assert len(planned(20)) == 100


def test_the_short_plan_has_kills_standstills_splits_and_an_expiry() -> None:
    kinds = {fault.kind for fault in short_plan()}
    assert kinds >= {Kind.KILL_LEADER, Kind.KILL_CONTROLLER, Kind.PAUSE_CONTROLLER}
    assert kinds >= {
        Kind.SPLIT,
        Kind.ALONE,
        Kind.NO_ZOOKEEPER,
        Kind.EXPIRE,
        Kind.ZOOKEEPER_RESTART,
        Kind.ROLLING,
    }


# --- replicas ------------------------------------------------------------------------------------
def batch(base: int, records: int, filling: bytes = b"x") -> bytes:
    body = struct.pack(">iBIhi", 0, 2, 0, 0, records - 1) + filling * 40
    return struct.pack(">qi", base, len(body)) + body


def folders(root: Path, *replicas: list[bytes]) -> dict[int, Path]:
    """Write each replica's segments, given as bytes, into a folder of its own."""
    made = {}
    for number, segments in enumerate(replicas, 1):
        made[number] = root / f"broker-{number}" / "t-0"
        made[number].mkdir(parents=True)
        for at, data in enumerate(segments):
            (made[number] / f"{at:020}.log").write_bytes(data)
    return made


A, B, C = batch(0, 3), batch(3, 2), batch(5, 1)


def test_replicas_are_alike_though_segments_starts_and_ends_are_not(tmp_path: Path) -> None:
    found = folders(tmp_path, [A + B, C], [A, B + C], [B], [A + B + C[:20]])
    assert problems_of_replicas("t-0", found) == []
    assert problems_of_replicas("t-0", found, 5) == []
    assert partitions_of({1: tmp_path / "broker-1"}) == {"t-0": {1: found[1]}}


def test_replicas_that_differ_or_end_early_are_named(tmp_path: Path) -> None:
    found = folders(tmp_path, [A, B, C], [A + batch(3, 2, b"y") + C], [A])
    assert problems_of_replicas("t-0", {1: found[1], 2: found[2]}) == [
        "t-0: brokers 1 and 2 differ at offset 3"
    ]
    assert problems_of_replicas("t-0", {1: found[1], 3: found[3]}, 6) == [
        "t-0: broker 3 has records up to 3 of 6"
    ]
    # A batch that is missing between two others.
    gap = folders(tmp_path / "gap", [A + B + C], [A + C])
    assert problems_of_replicas("t-0", gap) == ["t-0: brokers 1 and 2 differ at offset 3"]


# --- records and sights --------------------------------------------------------------------------
def test_records_that_are_there_twice_or_not_in_order_are_named() -> None:
    rows = [Input(0, offset, b"k", number) for offset, number in enumerate((1, 4, 7))]
    assert problems_of_order(rows) == []
    twice = [*rows, Input(0, 3, b"k", 7)]
    assert problems_of_order(twice) == ["copies-in-0: 1 records are there twice"]
    swapped = [*rows, Input(0, 3, b"k", 5)]
    assert problems_of_order(swapped) == ["copies-in-0: records are not in their order"]


def test_what_a_sight_lacks_is_named() -> None:
    where = ("t", 0)
    whole = Sight(2, {where: 1}, {where: ALL})
    assert whole.lacks(ALL, ["t"]) is None
    assert whole.lacks(ALL, ["t", "u"]) == "no topic u"
    assert whole._replace(controller=-1).lacks(ALL, ["t"]) == "no controller"
    assert whole._replace(leaders={where: -1}).lacks(ALL, ["t"]) == "t-0 has no leader"
    shrunk = whole._replace(in_sync={where: frozenset((1, 2))})
    assert shrunk.lacks(ALL, ["t"]) == "t-0 has in sync [1, 2]"


# --- what Java's consumer read -------------------------------------------------------------------
def test_a_reader_may_begin_an_assignment_anywhere_in_what_it_has_read() -> None:
    assignments = [
        {0: [Run(0, 4, 5), Run(5, 5, 1)], 1: [Run(0, 1, 2)]},
        {},
        {0: [Run(3, 7, 5)], 1: [Run(2, 2, 1)]},
    ]
    assert problems_of_reading(assignments, {0: 8, 1: 3, 2: 0}) == []
    assert ends_of(assignments) == {0: 8, 1: 3}


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        ([{0: [Run(1, 3, 3)]}], "was read behind 0"),
        ([{0: [Run(0, 1, 2), Run(3, 3, 1)]}], "was read behind 2"),
        ([{0: [Run(0, 2, 3), Run(2, 3, 2)]}], "was read behind 3"),
        ([{0: [Run(0, 1, 2)]}, {0: [Run(3, 3, 1)]}], "was read behind 2"),
        ([{0: [Run(0, 3, 3)]}], "was read behind 0"),
        ([{0: [Run(0, 2, 3)]}], "read up to 3 of 4"),
    ],
    ids=["start skipped", "skipped", "twice", "skipped between", "a hole", "end skipped"],
)
def test_what_a_reader_may_not_do(assignments: list[dict[int, list[Run]]], problem: str) -> None:
    [found] = problems_of_reading(assignments, {0: 4})
    assert found.startswith("java-0: ") and found.endswith(problem)


# --- what Java's producer wrote ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given_up", "there", "problem"),
    [
        ({}, {0: [1, 2, 4]}, None),
        ({2: "expired"}, {0: [1, 2, 4]}, None),
        ({3: "expired"}, {0: [1, 2, 4]}, "java: 1 failed: expired"),
        ({}, {0: [1, 2]}, "java: "),
        ({}, {0: [1, 1, 2, 4]}, "java-0: records are there twice, or not in order"),
    ],
    ids=["all", "there though it was given up", "given up", "lost", "twice"],
)
def test_what_a_writer_may_not_find(
    given_up: dict[int, str], there: dict[int, list[int]], problem: str | None
) -> None:
    acknowledged = [Record(0, 0, 1), Record(0, 2, 4)]
    found = problems_of_writing(acknowledged, given_up, there)
    if problem is None:
        assert found == []
    else:
        assert any(each.startswith(problem) for each in found)


# --- the copies ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "how", "may"),
    [
        (KafkaError._TIMED_OUT, {}, True),
        (KafkaError.NOT_COORDINATOR, {}, True),
        (KafkaError._TRANSPORT, {"retriable": True}, True),
        # The records of the transaction have timed out: every further call says so again.
        (KafkaError._TIMED_OUT, {"txn_requires_abort": True}, False),
        (KafkaError.UNKNOWN_MEMBER_ID, {}, False),
    ],
)
def test_a_copy_calls_again_what_may_work_but_not_in_a_transaction_to_be_aborted(
    code: int, how: dict[str, bool], may: bool
) -> None:
    assert may_call_again(KafkaError(code, "why", **how)) is may


@pytest.mark.parametrize(
    ("code", "how", "must"),
    [
        (KafkaError._TIMED_OUT, {"txn_requires_abort": True}, True),
        # `produce`, once a record before it has timed out: nothing else is said of the transaction.
        (KafkaError._STATE, {}, True),
        (KafkaError._FATAL, {}, True),
        (KafkaError._QUEUE_FULL, {}, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {}, False),
    ],
)
def test_a_copy_aborts_what_has_failed_also_if_only_produce_says_so(
    code: int, how: dict[str, bool], must: bool
) -> None:
    assert must_abort(KafkaError(code, "why", **how)) is must
