"""The floor of free disk space: its steps, the requests that a broker refuses, and its end."""

import logging
from pathlib import Path

import pytest

from klog_broker.app import BrokerServer
from klog_broker.log.directory.free_space import (
    MEASURE_INTERVAL_MS,
    NEAR_FLOOR_INTERVAL_MS,
    FreeSpace,
)
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.replication.errors import TooLittleFreeSpace
from klog_broker.replication.leader import Leader
from tests.support.cluster import server as memory_start
from tests.support.log.harness import batch
from tests.support.runtime.memory_files import MemoryFiles

FLOOR = 1_000_000
GIB = 1 << 30


@pytest.mark.parametrize(
    ("usable_bytes", "refused"),
    [
        ((FLOOR,), ""),
        ((FLOOR - 1,), "clients"),
        ((FLOOR - 1, FLOOR), "clients"),
        ((FLOOR - 1, FLOOR + FLOOR // 4 - 1), "clients"),
        ((FLOOR - 1, FLOOR + FLOOR // 4), ""),
        ((FLOOR - 1, FLOOR + FLOOR // 4, FLOOR), ""),
        ((FLOOR // 4,), "clients"),
        ((FLOOR // 4 - 1,), "clients state"),
        ((FLOOR // 4 - 1, FLOOR // 4), "clients state"),
        ((0, FLOOR // 4 + FLOOR // 16), "clients"),
        ((0, 10 * FLOOR), ""),
    ],
)
def test_what_is_refused(usable_bytes: tuple[int, ...], refused: str) -> None:
    space = FreeSpace(Path("/data"))
    for each in usable_bytes:
        space.update(each, FLOOR)
    found = {"clients": space.refuses_clients, "state": space.refuses_state}
    assert " ".join(name for name, is_refused in found.items() if is_refused) == refused


def test_without_a_floor_nothing_is_refused() -> None:
    space = FreeSpace(Path("/data"))
    assert space.update(0, 1)
    assert space.refuses_clients
    assert space.update(0, 0)
    assert not (space.refuses_clients or space.refuses_state)


@pytest.mark.parametrize(
    ("usable_bytes", "is_near_floor"), [(FLOOR + 1, True), (FLOOR + GIB, False)]
)
def test_the_disk_is_close_to_the_floor_within_a_gibibyte(
    usable_bytes: int, is_near_floor: bool
) -> None:
    space = FreeSpace(Path("/data"))
    assert not space.is_near_floor
    space.update(usable_bytes, FLOOR)
    assert space.is_near_floor is is_near_floor


def leader_of(broker: BrokerServer, topic: str) -> Leader:
    return broker.services.replicas.led[topic, 0]


def pass_time(broker: BrokerServer, milliseconds: int) -> None:
    broker.loop.clock.advance(milliseconds)  # type: ignore[attr-defined]
    for _ in range(3):
        broker.loop.run_turn(0)


def test_a_broker_refuses_records_until_there_is_free_space(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    broker = memory_start.start(files, log_dir_min_free_bytes=FLOOR)
    memory_start.make_topic(broker, "flights")
    leader = leader_of(broker, "flights")
    version = broker.services.replicas.version
    files.free_bytes = FLOOR // 2
    caplog.set_level(logging.INFO, "klog.log")
    pass_time(broker, MEASURE_INTERVAL_MS + 100)
    assert caplog.messages == [
        f"log_dir=/data free_bytes={FLOOR // 2} log.dir.min.free.bytes={FLOOR} refused=records"
    ]
    # Produce plans are made again, without this partition.
    assert broker.services.replicas.version > version
    assert not leader.has_free_space
    for acks_all in (False, True):
        with pytest.raises(TooLittleFreeSpace, match=r"has 500000 bytes left, too .*=1000000: "):
            leader.append(batch(1), acks_all=acks_all, now_ms=1_000)
    end_offset = leader.log.log_end_offset
    leader.append(batch(1), acks_all=True, now_ms=1_000, origin=AppendOrigin.COORDINATOR)
    assert leader.log.log_end_offset == end_offset + 1
    files.free_bytes = FLOOR // 8
    pass_time(broker, MEASURE_INTERVAL_MS + 10)
    with pytest.raises(TooLittleFreeSpace):
        leader.append(batch(1), acks_all=True, now_ms=1_000, origin=AppendOrigin.COORDINATOR)
    files.free_bytes = 2 * FLOOR
    pass_time(broker, NEAR_FLOOR_INTERVAL_MS + 10)
    leader.append(batch(1), acks_all=True, now_ms=1_000)
    assert caplog.messages[-1].endswith("refused=nothing")
    broker.close()


def test_a_start_below_the_floor_refuses_from_its_first_moment() -> None:
    files = MemoryFiles()
    files.free_bytes = FLOOR - 1
    broker = memory_start.start(files, log_dir_min_free_bytes=FLOOR)
    (directory,) = broker.services.logs.directories
    assert directory.space.refuses_clients
    broker.close()


def test_a_disk_that_does_not_answer_changes_nothing() -> None:
    files = MemoryFiles()
    broker = memory_start.start(files, log_dir_min_free_bytes=FLOOR)
    memory_start.make_topic(broker, "flights")

    def fail(_: Path) -> object:
        raise OSError(5, "the disk is broken")

    files.disk_usage = fail  # type: ignore[method-assign, assignment]
    pass_time(broker, MEASURE_INTERVAL_MS + 100)
    leader_of(broker, "flights").append(batch(1), acks_all=True, now_ms=1_000)
    broker.close()


def test_without_a_floor_the_free_space_is_measured_for_the_metrics() -> None:
    files = MemoryFiles()
    files.free_bytes = GIB // 2
    broker = memory_start.start(files, log_dir_min_free_bytes=0)
    (directory,) = broker.services.logs.directories
    pass_time(broker, MEASURE_INTERVAL_MS + 100)
    assert directory.space.usable_bytes is None
    broker.services.logs.free_space.measure_without_floor()
    pass_time(broker, 1)
    assert 0 < (directory.space.usable_bytes or 0) <= GIB // 2
    assert not (directory.space.refuses_clients or directory.space.is_near_floor)
    broker.close()
