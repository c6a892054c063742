"""Regions of files on their way out: which pages are probed, how many bytes a call sends, and that
a connection is as quiet behind them as behind any answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog_broker.network import bounds
from klog_broker.network.connection_states import QUIET
from klog_broker.network.responses import QueuedResponse
from klog_broker.runtime.disk.files import ProbedRegion, ReadRegion
from tests.unit.network.test_connection import FETCH, Broker, frame

SIZE = 2 * bounds.PROBED_BYTES


class CountingFile:
    """A file in memory that counts its probes and sends; some of its pages are cold."""

    path = Path("counting.log")

    def __init__(self, size_bytes: int) -> None:
        self.data = bytes(range(251)) * (size_bytes // 251 + 1)
        self.probes: list[tuple[int, int]] = []
        self.reads: list[tuple[int, int]] = []
        self.cold_from = 1 << 62

    def is_warm(self, position: int, size: int) -> bool:
        self.probes.append((position, size))
        return position + size <= self.cold_from

    def pread(self, size: int, position: int) -> bytes:
        self.reads.append((position, size))
        return self.data[position : position + size]

    def read_ahead(self, position: int, size: int) -> None:
        self.cold_from = max(self.cold_from, position + size)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_what_was_probed_in_this_turn_is_sent_without_another_probe(broker: Broker) -> None:
    file = CountingFile(SIZE)
    broker.answers = lambda _, slot: slot.complete([b"H", ProbedRegion(file, 3, 1000), b"T"])
    stream = broker.connect()
    stream.inbox += frame(FETCH)
    broker.turns()
    assert stream.sent == b"H" + file.data[3:1003] + b"T"
    assert file.probes == []


def test_what_was_not_probed_before_is_probed(broker: Broker) -> None:
    file = CountingFile(SIZE)
    broker.answers = lambda _, slot: slot.complete([b"H", ReadRegion(file, 3, 1000), b"T"])
    stream = broker.connect()
    stream.inbox += frame(FETCH)
    broker.turns()
    assert stream.sent == b"H" + file.data[3:1003] + b"T"
    assert file.probes == [(3, 1000)]


def test_a_probe_is_valid_for_its_own_turn_only(broker: Broker) -> None:
    """Pages that the socket did not take in this turn may have left the cache by the next one."""
    file = CountingFile(SIZE)
    broker.answers = lambda _, slot: slot.complete([b"H", ProbedRegion(file, 0, 1000)])
    stream = broker.connect()
    stream.room_bytes = 101
    stream.inbox += frame(FETCH)
    broker.turns(1)
    file.cold_from = 200
    stream.room_bytes = 5000
    broker.turns()
    assert len(broker.helpers.waiting) == 1
    assert stream.sent == b"H" + file.data[:100]
    broker.helpers.run_all()
    broker.turns()
    assert stream.sent == b"H" + file.data[:1000]


def test_a_large_region_is_probed_piece_by_piece_and_sent_by_one_call(broker: Broker) -> None:
    """A consumer's default amount, with bytes before and behind it, is sent in one turn."""
    size = 1024 * 1024
    file = CountingFile(size)
    broker.answers = lambda _, slot: slot.complete([b"H" * 72, ProbedRegion(file, 0, size), b"T"])
    stream = broker.connect()
    stream.inbox += frame(FETCH)
    broker.turns(1)
    assert stream.sent == b"H" * 72 + file.data[:size] + b"T"
    assert file.reads == [(0, size)]
    ends = {position + length for position, length in file.probes}
    assert ends == {*range(bounds.PROBED_BYTES, size, bounds.PROBED_BYTES), size}


def test_a_region_is_sent_up_to_its_first_cold_piece(broker: Broker) -> None:
    file = CountingFile(3 * bounds.PROBED_BYTES)
    file.cold_from = 2 * bounds.PROBED_BYTES + 1
    size = 3 * bounds.PROBED_BYTES
    broker.answers = lambda _, slot: slot.complete([ReadRegion(file, 0, size)])
    stream = broker.connect()
    stream.inbox += frame(FETCH)
    broker.turns()
    assert len(stream.sent) == 2 * bounds.PROBED_BYTES
    broker.helpers.run_all()
    broker.turns()
    assert stream.sent == file.data[:size]


def test_the_connection_is_quiet_behind_a_region_as_behind_bytes(broker: Broker) -> None:
    file = CountingFile(SIZE)
    connections = []

    def answer(request: memoryview, slot: object, connection: object) -> None:
        connections.append(connection)
        slot.complete([b"H", ProbedRegion(file, 0, 1000)])  # type: ignore[attr-defined]

    broker.server.handle_frame = answer
    stream = broker.connect()
    for _ in range(3):
        stream.inbox += frame(FETCH)
        broker.turns(1)
        assert connections[-1].state is QUIET  # type: ignore[attr-defined]
    assert len(stream.sent) == 3 * 1001


def test_a_region_that_was_sent_or_dropped_is_not_kept(broker: Broker) -> None:
    """The file of a deleted log closes with the last reference to it."""
    slots: list[QueuedResponse] = []

    def answer(_: object, slot: QueuedResponse) -> None:
        slots.append(slot)
        slot.complete([b"H", ProbedRegion(CountingFile(SIZE), 3, 1000), b"T"])

    broker.answers = answer
    stream = broker.connect()
    stream.inbox += frame(FETCH) + frame(FETCH)
    broker.turns()
    queued = [each for each in slots if isinstance(each, QueuedResponse)]
    assert queued
    assert [each.parts for each in queued] == [[]] * len(queued)
