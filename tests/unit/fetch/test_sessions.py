"""Fetch sessions (KIP-227): partitions that are reported or left out, and the session cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from klog_broker.fetch import sessions
from klog_broker.fetch.reader import FetchReader
from klog_broker.fetch.sessions import MIN_EVICTION_MS, next_epoch
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from tests.support.api.session_client import SessionClient, partition_rows
from tests.support.cluster.broker import MemoryBroker, new_broker, topic_ids
from tests.support.raw_requests import batch, produce_request

PLAIN = {("plain", 0): 0, ("plain", 1): 0, ("plain", 2): 0}
SESSION_ID_NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
INVALID_EPOCH = ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def write(broker: MemoryBroker, topic: str, partition: int = 0, *values: bytes) -> None:
    records = batch(*(values or (b"x",)))
    answer = broker.call(produce_request(topic, records, partition), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def at_end(broker: MemoryBroker, **options: Any) -> SessionClient:
    """Return a client that waits at the ends of three partitions, and knows all of them."""
    client = SessionClient(broker, **options)
    assert len(client.begin_session(PLAIN)) == 3
    assert client.session_id > 0
    return client


def test_a_session_answers_only_changed_partitions(broker: MemoryBroker) -> None:
    client = at_end(broker)
    assert partition_rows(client.fetch({}, 1)) == {}
    write(broker, "plain", 1)
    found = partition_rows(client.fetch({}, 2))
    assert list(found) == [("plain", 1)]
    assert (found["plain", 1].high_watermark, len(found["plain", 1].records) > 0) == (1, True)
    assert list(partition_rows(client.fetch({}, 3))) == [("plain", 1)], "not read on: told again"
    assert partition_rows(client.fetch({("plain", 1): 1}, 4)) == {}
    assert partition_rows(client.fetch({}, 5)) == {}


def test_the_bytes_of_a_session_are_counted(broker: MemoryBroker) -> None:
    client = at_end(broker)
    counts = broker.log("plain").counts
    write(broker, "plain", 0, b"x" * 500)
    sent_bytes = len(partition_rows(client.fetch({}, 1))["plain", 0].records)
    assert counts.bytes_out == sent_bytes > 500
    client.send({("plain", 0): 1}, 2, max_wait_ms=600_000)
    write(broker, "plain", 0, b"x" * 900)
    sent_bytes += len(partition_rows(client.answer())["plain", 0].records)
    assert counts.bytes_out == sent_bytes


def test_idle_partitions_are_not_looked_at(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = at_end(broker)
    client.fetch({}, 1)
    looked_at: list[int] = []
    read = FetchReader.read

    def counted(reader: FetchReader, partitions: Any) -> Any:
        looked_at.append(len(partitions))
        return read(reader, partitions)

    monkeypatch.setattr(FetchReader, "read", counted)
    client.fetch({}, 2)
    write(broker, "plain", 2)
    client.fetch({}, 3)
    assert looked_at == [0, 1]


def test_a_session_waits_for_any_of_its_partitions(broker: MemoryBroker) -> None:
    client = at_end(broker)
    client.send({}, 1, max_wait_ms=600_000)
    assert not client.has_answer()
    write(broker, "small-messages")
    assert not client.has_answer()
    write(broker, "plain", 2)
    assert list(partition_rows(client.answer())) == [("plain", 2)]
    client.send({("plain", 2): 1}, 2, max_wait_ms=600_000, min_bytes=100)
    write(broker, "plain", 0)
    assert not client.has_answer(), "fewer than min_bytes"
    write(broker, "plain", 1)
    assert set(partition_rows(client.answer())) == {("plain", 0), ("plain", 1)}


def test_what_did_not_come_within_the_bytes_comes_first_in_the_next_fetch(
    broker: MemoryBroker,
) -> None:
    client = at_end(broker)
    offsets = dict.fromkeys(PLAIN, 0)
    for partition in range(3):
        for _ in range(3):
            write(broker, "plain", partition)
    order = []
    changed: dict[Any, int] = {}
    for epoch in range(1, 10):
        found = partition_rows(client.fetch(changed, epoch, max_bytes=1))
        (place,) = [key for key, each in found.items() if len(each.records)]
        order.append(place[1])
        offsets[place] += 1
        changed = {place: offsets[place]}
    assert sorted(order[:3]) == sorted(order[3:6]) == sorted(order[6:]) == [0, 1, 2]


def test_a_rise_of_the_log_start_is_answered(broker: MemoryBroker) -> None:
    write(broker, "plain")
    client = SessionClient(broker)
    client.begin_session({("plain", 0): 1})
    assert partition_rows(client.fetch({}, 1)) == {}
    broker.log("plain").delete_records_before(1)
    broker.broker.loop.run_turn(0)
    found = partition_rows(client.fetch({}, 2))
    assert found["plain", 0].log_start_offset == 1
    assert partition_rows(client.fetch({}, 3)) == {}


def test_forgotten_partitions_are_not_answered_any_more(broker: MemoryBroker) -> None:
    client = at_end(broker)
    client.fetch({}, 1, forget=[("plain", 1)])
    write(broker, "plain", 1)
    assert partition_rows(client.fetch({}, 2)) == {}
    assert list(partition_rows(client.fetch({("plain", 1): 0}, 3))) == [("plain", 1)], "named anew"


def test_a_session_without_partitions_ends(broker: MemoryBroker) -> None:
    client = at_end(broker)
    answer = client.fetch({}, 1, forget=list(PLAIN))
    assert (answer.error_code, answer.session_id) == (0, 0)
    assert client.fetch({}, 2).error_code == SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("epoch", "code"), [(0, 0), (-1, 0), (2, INVALID_EPOCH), (7, 71)])
def test_the_epochs_of_a_session(broker: MemoryBroker, epoch: int, code: int) -> None:
    client = at_end(broker)
    answer = client.fetch(PLAIN, epoch)
    assert answer.error_code == code
    if code:
        assert (answer.session_id, answer.responses) == (0, [])
        assert client.fetch({}, 1).error_code == 0, "a wrong epoch does no harm to the session"
    else:
        assert len(partition_rows(answer)) == 3, "a whole fetch"
        assert client.fetch({}, 1).error_code == SESSION_ID_NOT_FOUND, "it ends the session"


def test_epochs_go_round_past_what_has_a_meaning() -> None:
    assert [next_epoch(each) for each in (0, 1, 2**31 - 2, 2**31 - 1)] == [1, 2, 2**31 - 1, 1]


def test_a_session_has_topic_ids_or_names(broker: MemoryBroker) -> None:
    client = at_end(broker)
    client.version = 13
    assert client.fetch({}, 1).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.version = 12
    assert client.fetch({}, 1).error_code == 0


def test_an_error_is_answered_until_it_is_over(broker: MemoryBroker) -> None:
    client = SessionClient(broker)
    place = ("later", 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.begin_session({place: 0})[place].error_code == unknown
    for epoch in (1, 2):
        assert partition_rows(client.fetch({}, epoch))[place].error_code == unknown
    topic = CreatableTopic(name="later", num_partitions=1, replication_factor=1)
    broker.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert partition_rows(client.fetch({}, 3))[place].high_watermark == 0
    assert partition_rows(client.fetch({}, 4)) == {}
    client.send({}, 5, max_wait_ms=600_000)
    broker.call(DeleteTopicsRequest(topic_names=["later"], timeout_ms=1000), 5)
    assert partition_rows(client.answer())[place].error_code == unknown


def test_topic_ids_are_resolved_with_each_read(broker: MemoryBroker) -> None:
    known, unknown = topic_ids()["plain"], UUID(int=7)
    client = SessionClient(broker, version=18)
    found = client.begin_session({(known, 0): 0, (unknown, 0): 0})
    assert found[str(unknown), 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert list(partition_rows(client.fetch({}, 1))) == [(str(unknown), 0)]
    write(broker, "plain")
    assert set(partition_rows(client.fetch({}, 2))) == {(str(unknown), 0), (str(known), 0)}


def test_a_second_connection_takes_the_session_over(broker: MemoryBroker) -> None:
    first = at_end(broker)
    first.send({}, 1, max_wait_ms=600_000)
    second = SessionClient(broker)
    second.session_id = first.session_id
    second.send({}, 2, max_wait_ms=600_000)
    write(broker, "plain", 0)
    answer = first.answer()
    assert (answer.error_code, answer.session_id) == (INVALID_EPOCH, first.session_id)
    assert list(partition_rows(second.answer())) == [("plain", 0)]


def test_the_end_of_a_session_ends_its_wait(broker: MemoryBroker) -> None:
    first = at_end(broker)
    first.send({}, 1, max_wait_ms=600_000)
    SessionClient(broker).fetch({}, -1, session_id=first.session_id)
    assert first.answer().error_code == INVALID_EPOCH
    purgatory = broker.broker.services.purgatory
    key = broker.log("plain").topic_partition
    assert (purgatory.waiting, purgatory.listening_to(key)) == (0, 0)


# -- the session cache ------------------------------------------------------------------------


def settled(slots: int) -> MemoryBroker:
    return new_broker(with_kernel=False, max_incremental_fetch_session_cache_slots=slots)


def test_with_a_full_cache_a_client_fetches_without_a_session() -> None:
    broker = settled(1)
    first, second = at_end(broker), SessionClient(broker)
    assert len(second.begin_session(PLAIN)) == 3
    assert second.session_id == 0
    assert partition_rows(first.fetch({}, 1)) == {}


def test_no_slots_no_sessions() -> None:
    client = SessionClient(settled(0))
    client.begin_session(PLAIN)
    assert client.session_id == 0


def test_an_idle_session_is_evicted() -> None:
    broker = settled(1)
    first = at_end(broker)
    broker.clock.advance(MIN_EVICTION_MS)
    second = SessionClient(broker)
    second.begin_session({("plain", 0): 0})
    assert second.session_id == 0, "not yet"
    broker.clock.advance(1)
    second.begin_session({("plain", 0): 0})
    assert second.session_id > 0
    assert first.fetch({}, 1).error_code == SESSION_ID_NOT_FOUND


def test_an_old_session_is_evicted_for_a_larger_one() -> None:
    broker = settled(2)
    small, same = SessionClient(broker), at_end(broker)
    small.begin_session({("plain", 0): 0})
    broker.clock.advance(MIN_EVICTION_MS + 1)
    assert partition_rows(small.fetch({}, 1)) == partition_rows(same.fetch({}, 1)) == {}, (
        "both are in use"
    )
    as_small = SessionClient(broker)
    as_small.begin_session({("plain", 1): 0})
    assert as_small.session_id == 0
    broker.clock.advance(1000)
    larger = SessionClient(broker)
    larger.begin_session({("plain", 1): 0, ("plain", 2): 0})
    assert larger.session_id > 0
    assert small.fetch({}, 2).error_code == SESSION_ID_NOT_FOUND
    assert same.fetch({}, 2).error_code == 0


@pytest.fixture
def small_room(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    """Sessions of four partitions together, and more slots than that."""
    monkeypatch.setattr(sessions, "MAX_PARTITIONS", 4)
    return settled(10)


def test_partitions_of_all_sessions_are_bounded(small_room: MemoryBroker) -> None:
    first, second, third = at_end(small_room), SessionClient(small_room), SessionClient(small_room)
    second.begin_session({("flushed", 0): 0})
    assert second.session_id > 0
    third.begin_session({("compacted", 0): 0})
    assert third.session_id == 0, "a fifth partition"
    assert partition_rows(first.fetch({}, 1)) == partition_rows(second.fetch({}, 1)) == {}
    first.fetch({}, 2, forget=[("plain", 2)])
    third.begin_session({("compacted", 0): 0})
    assert third.session_id > 0


def test_a_session_larger_than_the_cache_evicts_no_other(small_room: MemoryBroker) -> None:
    first = at_end(small_room)
    small_room.clock.advance(MIN_EVICTION_MS + 1)
    larger = SessionClient(small_room)
    larger.begin_session(
        {("plain", number): 0 for number in range(3)}
        | {("flushed", number): 0 for number in range(2)}
    )
    assert larger.session_id == 0
    assert partition_rows(first.fetch({}, 1)) == {}


def test_abandoned_sessions_are_evicted_for_the_partitions_of_others(
    small_room: MemoryBroker,
) -> None:
    """A client that comes again and again, and leaves a session behind each time."""
    left, used = SessionClient(small_room), SessionClient(small_room)
    left.begin_session({("plain", 0): 0})
    used.begin_session({("plain", 0): 0})
    small_room.clock.advance(MIN_EVICTION_MS)
    used.fetch({}, 1)
    small_room.clock.advance(1)
    newer = SessionClient(small_room)
    newer.begin_session(PLAIN)
    assert newer.session_id > 0
    assert left.fetch({}, 1).error_code == SESSION_ID_NOT_FOUND
    assert partition_rows(used.fetch({}, 2)) == {}
    assert partition_rows(newer.fetch({}, 1)) == {}


def test_a_session_that_grows_too_much_ends(small_room: MemoryBroker) -> None:
    first, second = at_end(small_room), SessionClient(small_room)
    second.begin_session({("flushed", 0): 0})
    small_room.clock.advance(MIN_EVICTION_MS + 1)
    assert partition_rows(second.fetch({}, 1)) == {}
    grown = first.fetch({("compacted", 0): 0}, 1)
    assert grown.error_code == SESSION_ID_NOT_FOUND, "the other one is in use"
    assert len(first.begin_session(PLAIN)) == 3, "it goes on without its old session"
    assert first.session_id > 0
    small_room.clock.advance(MIN_EVICTION_MS + 1)
    assert partition_rows(first.fetch({("compacted", 0): 0}, 1)).keys() == {("compacted", 0)}
    assert second.fetch({}, 2).error_code == SESSION_ID_NOT_FOUND, "nobody used it for long"


# -- files ------------------------------------------------------------------------------------


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("_no_garbage_collection")
def test_a_session_without_a_connection_holds_no_deleted_segment(broker: MemoryBroker) -> None:
    client = at_end(broker)
    write(broker, "plain", 0, b"x" * 2000)
    client.send({}, 1, max_wait_ms=600_000, min_bytes=1 << 20)
    client.stream.is_at_end = True
    broker.turns()
    assert broker.broker.services.purgatory.waiting == 0
    delete(broker, "plain")
    assert len(broker.broker.services.fetch_sessions) == 1
    assert broker.files.removed_files_held() == []


@pytest.mark.usefixtures("_no_garbage_collection")
def test_a_fetch_whose_client_leaves_while_an_index_is_cold_holds_no_deleted_segment(
    broker: MemoryBroker,
) -> None:
    for _ in range(3):
        write(broker, "small-segments", 0, b"x" * 1000)
    client = SessionClient(broker)
    broker.files.freeze()
    broker.helpers.is_held = True
    client.send({("small-segments", 0): 0}, 0)
    assert broker.broker.services.requests.counters["cold-look-ups"] == 1
    client.stream.is_at_end = True
    broker.turns()
    broker.files.thaw.set()
    broker.helpers.release()
    broker.turns()
    delete(broker, "small-segments")
    assert broker.files.removed_files_held() == []


def delete(broker: MemoryBroker, topic: str) -> None:
    """Deletes a topic and waits for the delayed removal of its files."""
    broker.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    broker.pass_time(60_000)
