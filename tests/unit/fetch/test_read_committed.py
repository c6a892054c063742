"""Fetch with read_committed: its end, its aborted transactions, and when a waiting one returns."""

from collections.abc import Callable
from typing import Any

import pytest

from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.fetch import FetchRequest, PartitionData
from tests.support.api.session_client import SessionClient, partition_rows
from tests.support.cluster.broker import MemoryBroker, answer_of, new_broker
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.raw_requests import fetch_request
from tests.support.runtime.fake_network import FakeStream

COMMITTED = 1
FETCH = 12
LONG_MS = 600_000


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


@pytest.fixture
def log(broker: MemoryBroker) -> PartitionLog:
    found: PartitionLog = broker.log("plain")
    return found


def fetched(stream: FakeStream, version: int = FETCH) -> PartitionData:
    found: PartitionData = answer_of(stream, FetchRequest(), version).responses[0].partitions[0]
    return found


def fetch(
    broker: MemoryBroker, offset: int = 0, version: int = FETCH, **more: Any
) -> PartitionData:
    request = fetch_request("plain", offset, **{"isolation_level": COMMITTED, **more})
    return fetched(broker.send(request, version), version)


def in_a_turn(broker: MemoryBroker, action: Callable[[], object]) -> None:
    """Run the action in the loop, so that waiting fetches see its effect on the log."""
    broker.broker.loop.post(action)
    broker.turns()


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    rows = data.aborted_transactions
    return None if rows is None else [(each.producer_id, each.first_offset) for each in rows]


def waiting(broker: MemoryBroker, offset: int = 0) -> FakeStream:
    request = fetch_request(
        "plain", offset, max_wait_ms=LONG_MS, isolation_level=COMMITTED, min_bytes=1
    )
    return broker.send(request, FETCH)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_aborted_transactions_are_listed_under_read_committed(
    broker: MemoryBroker, log: PartitionLog, version: int
) -> None:
    write(log, 5, 0)
    write(log, 6, 0)
    append_end_marker(log, 5, commit=False)
    append_end_marker(log, 6, commit=True)
    found = fetch(broker, version=version)
    assert (aborted(found), found.last_stable_offset, found.high_watermark) == ([(5, 0)], 4, 4)
    assert aborted(fetch(broker, 3, version=version)) == []
    assert aborted(fetch(broker, version=version, isolation_level=0)) is None


def test_only_what_lies_in_the_answer_is_listed(broker: MemoryBroker) -> None:
    log = broker.log("dense-index")
    for sequence in range(100):
        write(log, 5, sequence)
        append_end_marker(log, 5, commit=False)
    request = fetch_request("dense-index", 100, partition_max_bytes=700, isolation_level=COMMITTED)
    found = fetched(broker.send(request, FETCH))
    listed = aborted(found)
    assert listed is not None
    assert listed[0] == (5, 100)
    assert len(listed) < 10


def test_a_transaction_that_begins_with_the_last_batch_is_listed(broker: MemoryBroker) -> None:
    log = broker.log("dense-index")
    for sequence in range(5):
        write(log, 4, sequence, is_transactional=False)
    write(log, 5, 0)
    append_end_marker(log, 5, commit=False)
    request = fetch_request("dense-index", 5, partition_max_bytes=1, isolation_level=COMMITTED)
    assert aborted(fetched(broker.send(request, FETCH))) == [(5, 5)]


def test_nothing_is_read_behind_an_open_transaction(
    broker: MemoryBroker, log: PartitionLog
) -> None:
    write(log, 5, 0, is_transactional=False)
    write(log, 6, 0)
    write(log, 5, 1, is_transactional=False)
    first = fetch(broker)
    assert (first.last_stable_offset, first.high_watermark) == (1, 3)
    behind = fetch(broker, 2)
    assert (behind.error_code, bytes(behind.records or b"")) == (0, b"")
    assert fetch(broker, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_that_waits_goes_on_when_the_transaction_ends(
    broker: MemoryBroker, log: PartitionLog
) -> None:
    write(log, 6, 0)
    streams = [waiting(broker), waiting(broker, 1)]
    in_a_turn(broker, lambda: write(log, 5, 0, is_transactional=False))
    assert not any(stream.sent for stream in streams)
    in_a_turn(broker, lambda: append_end_marker(log, 6, commit=False))
    assert [aborted(fetched(stream)) for stream in streams] == [[(6, 0)], [(6, 0)]]


def test_an_end_behind_another_open_transaction_wakes_nobody(
    broker: MemoryBroker, log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(log, 6, 0)
    write(log, 7, 0)
    stream = waiting(broker, 1)
    reads = []
    monkeypatch.setattr(log, "read", lambda *_, **__: reads.append(1))
    in_a_turn(broker, lambda: append_end_marker(log, 7, commit=True))
    assert not stream.sent
    assert not reads


def test_a_session_gets_a_partition_once_a_transaction_has_ended(
    broker: MemoryBroker, log: PartitionLog
) -> None:
    client = SessionClient(broker)
    client.isolation_level = COMMITTED
    write(log, 6, 0)
    (first,) = client.begin_session({("plain", 0): 0}).values()
    assert (first.last_stable_offset, first.high_watermark, bool(first.records)) == (0, 1, False)
    client.send({}, epoch=1, max_wait_ms=LONG_MS)
    in_a_turn(broker, lambda: append_end_marker(log, 6, commit=True))
    (second,) = partition_rows(client.answer()).values()
    assert (second.last_stable_offset, bool(second.records)) == (2, True)


def test_an_index_that_is_damaged_fails_the_partition(
    broker: MemoryBroker, log: PartitionLog
) -> None:
    write(log, 6, 0)
    append_end_marker(log, 6, commit=False)
    file = log.segments[0].transaction_index.file
    assert file is not None
    file.pwrite(b"\x7f", 0)
    assert fetch(broker).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch(broker, isolation_level=0).error_code == 0


def test_a_cold_index_is_brought_in_by_a_helper(broker: MemoryBroker, log: PartitionLog) -> None:
    write(log, 6, 0)
    append_end_marker(log, 6, commit=False)
    broker.files.freeze()
    broker.helpers.is_held = True
    stream = broker.send(fetch_request("plain", isolation_level=COMMITTED), FETCH)
    assert not stream.sent
    broker.files.thaw.set()
    for _ in range(3):
        broker.helpers.release()
        broker.turns()
    assert aborted(fetched(stream)) == [(6, 0)]
