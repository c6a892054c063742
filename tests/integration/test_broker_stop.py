"""SIGTERM: accepted requests are answered, the wait for clients is bounded, and the next start is
clean."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog_broker.lifecycle.exit_codes import ExitCode
from klog_broker.runtime.disk.open_files import RealFile
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    batch,
    create_topic,
    fetch_request,
    first_partition,
    produce_request,
    produced,
    read_all,
)

DEADLINE_S = 30.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[BrokerThread]:
    with BrokerThread(data) as thread:
        yield thread


def waiting(broker: BrokerThread) -> int:
    found: int = broker.in_loop(lambda: broker.broker.services.purgatory.waiting)
    return found


def end_of(broker: BrokerThread) -> ExitCode | None:
    eventually(lambda: broker.exit_code is not None, DEADLINE_S, "the broker's end")
    return broker.exit_code


def test_a_long_poll_is_answered_at_once(broker: BrokerThread) -> None:
    with broker.client() as client, broker.client() as idle:
        create_topic(client, "topic")
        request = fetch_request("topic", max_wait_ms=600_000, min_bytes=1)
        client.send(request, 11)
        eventually(lambda: waiting(broker) == 1, DEADLINE_S, "the fetch waiting")
        broker.broker.stop()
        found = first_partition(client.receive(request, 11))
        assert found.error_code == ErrorCode.NONE
        assert client.is_closed_by_broker()
        assert idle.is_closed_by_broker()
    assert end_of(broker) is ExitCode.OK


def test_requests_that_were_received_are_served_and_answered(
    broker: BrokerThread, data: Path
) -> None:
    count = 1500
    with broker.client() as client:
        create_topic(client, "topic")
        request = produce_request("topic", batch(b"v"))
        frames = b"".join(
            client.frame(produce_request("topic", batch(b"%d" % number)), 9)
            for number in range(count)
        )
        client.send_bytes(frames)
        answered = []
        for number in range(count):
            if number == 10:
                broker.broker.stop()
            try:
                answer = client.receive(request, 9)
            except AssertionError:
                break
            answered.append(answer.responses[0].partition_responses[0].base_offset)
    assert answered == list(range(len(answered)))
    assert len(answered) > 10
    end_of(broker)
    with BrokerThread(data) as again, again.client() as client:
        assert again.broker.services.logs.is_clean_start
        values = [record.value for record in read_all(client, "topic")]
    # Exactly the acknowledged records were appended.
    assert values == [b"%d" % number for number in answered]


def test_a_reply_that_waits_for_a_sync_comes_after_it(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, may_go_on, sync = threading.Event(), threading.Event(), RealFile.sync

    def slow_sync(file: RealFile) -> None:
        waits.set()
        assert may_go_on.wait(DEADLINE_S)
        sync(file)

    with broker.client() as client:
        create_topic(client, "topic", flush_messages="1")
        monkeypatch.setattr(RealFile, "sync", slow_sync)
        request = produce_request("topic", batch(b"v"), acks=-1)
        client.send(request, 9)
        assert waits.wait(DEADLINE_S)
        broker.broker.stop()
        # The loop goes on: new connections are refused.
        eventually(lambda: not _can_connect(broker), DEADLINE_S, "the listener's end")
        assert not client.has_answer(0.05)
        may_go_on.set()
        answer = client.receive(request, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert end_of(broker) is ExitCode.OK


def _can_connect(broker: BrokerThread) -> bool:
    try:
        broker.client().close()
    except OSError:
        return False
    return True


def test_a_joining_member_gets_not_coordinator(data: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": 600_000}
    with BrokerThread(data, settings) as broker, broker.client() as client:

        def is_there() -> bool:
            found = client.call(FindCoordinatorRequest(key="group"), 0)
            return bool(found.error_code == ErrorCode.NONE)

        eventually(is_there, DEADLINE_S, "the coordinator")
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client.send(request, 2)
        assert not client.has_answer(0.3)
        broker.broker.stop()
        assert client.receive(request, 2).error_code == ErrorCode.NOT_COORDINATOR
        assert end_of(broker) is ExitCode.OK


def test_clients_that_do_not_read_do_not_hold_it_up(broker: BrokerThread) -> None:
    with broker.client() as client:
        create_topic(client, "topic")
        for _ in range(16):
            produced(client, "topic", batch(b"x" * 900_000))
        readers: list[RawClient] = []
        for _ in range(4):
            reader = broker.client()
            for _ in range(4):
                reader.send(fetch_request("topic", max_bytes=50_000_000), 11)
            readers.append(reader)
        eventually(
            lambda: broker.in_loop(lambda: broker.broker.server.connection_count) == 5,
            DEADLINE_S,
            "connections",
        )
        broker.broker.stop()
        assert end_of(broker) is ExitCode.OK
        for reader in readers:
            reader.close()
