"""Waiting fetches cost nothing until their partitions change."""

from __future__ import annotations

from typing import Any

import pytest

from klog_broker.fetch.reader import FetchReader
from tests.support.api.session_client import SessionClient, partition_rows
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.raw_requests import batch, produce_request

WAITING = 1000
WAIT_MS = 30_000


class Reads:
    """Counts reads of partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = FetchReader.read

        def counted(reader: FetchReader, partitions: Any) -> Any:
            self.count += 1
            return read(reader, partitions)

        monkeypatch.setattr(FetchReader, "read", counted)


def waiting_clients(broker: MemoryBroker, count: int, *, in_sessions: bool) -> list[SessionClient]:
    clients = []
    for number in range(count):
        client = SessionClient(broker)
        place: Any = ("plain", number % 2)
        if in_sessions:
            client.begin_session({place: 0})
            client.send({}, 1, max_wait_ms=WAIT_MS)
        else:
            client.send({place: 0}, -1, max_wait_ms=WAIT_MS)
        clients.append(client)
    return clients


@pytest.mark.parametrize("in_sessions", [False, True])
def test_fetches_that_wait_cause_no_turns_and_no_reads(
    in_sessions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between their beginning and their deadline the loop has nothing to do for any of them."""
    broker = new_broker(with_kernel=False)
    clients = waiting_clients(broker, WAITING, in_sessions=in_sessions)
    loop, purgatory = broker.broker.loop, broker.broker.services.purgatory
    assert purgatory.waiting == WAITING
    reads = Reads(monkeypatch)
    turns = 0
    end_ms = loop.now_ms() + WAIT_MS
    while (wake_ms := loop.next_wake_ms()) is not None and wake_ms < end_ms:
        # Housekeeping alone wakes the loop: the number of its turns is independent of the clients.
        broker.clock.advance(max(wake_ms - broker.clock.monotonic_ms(), 0))
        loop.run_turn(0)
        turns += 1
    assert (reads.count, purgatory.waiting) == (0, WAITING)
    assert turns <= 2 * WAIT_MS // 1000
    broker.clock.advance(WAIT_MS)
    loop.run_turn(0)
    assert (reads.count, purgatory.waiting) == (WAITING, 0)
    assert all(client.has_answer() for client in clients)


@pytest.mark.parametrize("in_sessions", [False, True])
def test_a_write_wakes_only_fetches_of_its_partition(
    in_sessions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = new_broker(with_kernel=False)
    clients = waiting_clients(broker, 100, in_sessions=in_sessions)
    reads = Reads(monkeypatch)
    broker.call(produce_request("plain", batch(b"x"), 1), 9)
    assert reads.count == 50
    answered = [client for client in clients if client.has_answer()]
    assert len(answered) == 50
    assert {key for client in answered for key in partition_rows(client.answer())} == {("plain", 1)}
