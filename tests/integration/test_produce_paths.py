"""Pipelined Produce on real sockets and disks: the kernel is loaded, serves, and loses nothing."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klog_broker.produce.kernel_loading import compile_produce_kernel, load_produce_kernel
from pyspark_klog.protocol.apis.fetch import FetchRequest
from pyspark_klog.protocol.apis.produce import ProduceRequest
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.kernels import cache
from tests.support.broker_process import BrokerProcess
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
    records_of,
)

# A cold cache is compiled first.
_LOAD_DEADLINE_S = 240


def burst(client: RawClient, topic: str, numbers: range, **options: Any) -> None:
    """Sends one request a number at once, and checks every answer."""
    client.send_bytes(
        b"".join(
            client.frame(produce_request(topic, batch(b"%d" % number), **options), 9)
            for number in numbers
        )
    )
    for number in numbers:
        answer = client.receive(ProduceRequest, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, number)


def load(thread: BrokerThread) -> None:
    """Brings the kernel in, as a pipelined turn does."""
    plans = thread.broker.plans
    assert plans is not None
    thread.in_loop(plans.load)
    eventually(lambda: plans.planner is not None, _LOAD_DEADLINE_S)


def planned(thread: BrokerThread) -> int:
    plans = thread.broker.plans
    assert plans is not None and plans.planner is not None
    return plans.planner.requests


def test_the_first_pipelined_turn_brings_the_kernel(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", load_kernel=load_produce_kernel) as thread:
        plans = thread.broker.plans
        assert plans is not None
        with thread.client() as client:
            create_topic(client, "t")
            for number in range(3):
                assert produced(client, "t", batch(b"%d" % number)) == number
            assert plans.planner is None
            burst(client, "t", range(3, 500))
            eventually(lambda: plans.planner is not None, _LOAD_DEADLINE_S)
            burst(client, "t", range(500, 2500))
            assert planned(thread) > 1000
            values = [record.value for record in read_all(client, "t")]
            assert values == [b"%d" % number for number in range(2500)]
    with BrokerThread(tmp_path / "data") as again, again.client() as client:
        assert [record.value for record in read_all(client, "t")] == values


def test_an_idle_broker_loads_the_kernel_before_there_is_a_load(tmp_path: Path) -> None:
    kernels = {"load_kernel": load_produce_kernel, "compile_kernel": compile_produce_kernel}
    with BrokerThread(tmp_path / "data", **kernels) as thread, thread.client() as client:
        plans = thread.broker.plans
        assert plans is not None
        create_topic(client, "t")
        produced(client, "t", batch(b"0"))
        eventually(lambda: plans.planner is not None, _LOAD_DEADLINE_S)
        burst(client, "t", range(1, 2))
        assert planned(thread) == 1


def test_a_waiting_fetch_gets_what_a_plan_appends(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", load_kernel=load_produce_kernel) as thread:
        load(thread)
        with thread.client() as writer, thread.client() as reader:
            create_topic(writer, "t")
            reader.send(fetch_request("t", max_wait_ms=60_000), 12)
            assert not reader.has_answer(0.1)
            burst(writer, "t", range(1))
            found = records_of(first_partition(reader.receive(FetchRequest, 12)))
            assert [record.value for record in found] == [b"0"]
        assert planned(thread) == 1


def test_what_a_plan_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        with RawClient(process.address) as client:
            create_topic(client, "t")
            # The kernel is there some time within this.
            for start in range(0, 20_000, 1000):
                burst(client, "t", range(start, start + 1000), acks=1)
        process.kill()
    with BrokerProcess(tmp_path / "data") as process, RawClient(process.address) as client:
        values = [record.value for record in read_all(client, "t")]
        assert values == [b"%d" % number for number in range(20_000)]


def test_a_large_request_alone_brings_the_kernel(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", load_kernel=load_produce_kernel) as thread:
        plans = thread.broker.plans
        assert plans is not None
        with thread.client() as client:
            create_topic(client, "t")
            produced(client, "t", batch(b"small"))
            assert plans.planner is None
            produced(client, "t", batch(bytes(40_000)))
            eventually(lambda: plans.planner is not None, _LOAD_DEADLINE_S)


@pytest.mark.parametrize("outcome", ["none", "error"])
def test_without_a_kernel_all_is_served(tmp_path: Path, outcome: str) -> None:
    asked = []

    def no_kernel(_: object) -> None:
        asked.append(outcome)
        if outcome == "error":
            raise ImportError("for the test")

    with BrokerThread(tmp_path / "data", load_kernel=no_kernel) as thread:
        with thread.client() as client:
            create_topic(client, "t")
            for start in range(0, 1500, 500):
                burst(client, "t", range(start, start + 500))
        plans = thread.broker.plans
        assert plans is not None
        assert plans.planner is None
    assert asked == [outcome]


def test_numba_that_may_not_compile_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert load_produce_kernel(lambda: False) is None


def test_a_cold_cache_is_compiled_by_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [False]
    is_warm, popen = cache.is_warm, subprocess.Popen
    monkeypatch.setattr(
        cache, "is_warm", lambda source: answers.pop() if answers else is_warm(source)
    )
    started = []

    def start(command: list[str], **options: Any) -> Any:
        started.append(command)
        return popen(command, **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    module = load_produce_kernel(lambda: False)
    assert module is not None
    assert [command[-1] for command in started] == ["klog_broker.warm"]


def test_a_broker_that_stops_does_not_wait_for_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "is_warm", lambda _: False)
    assert load_produce_kernel(lambda: True) is None


def test_compressed_and_plain_batches_of_several_clients(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data", load_kernel=load_produce_kernel) as thread:
        load(thread)
        with thread.client() as client:
            create_topic(client, "t", partitions=4)
        clients = [thread.client() for _ in range(4)]
        for partition, client in enumerate(clients):
            client.send_bytes(
                b"".join(
                    client.frame(
                        produce_request(
                            "t",
                            batch(b"%d" % number, codec=Codec.GZIP if number % 50 == 7 else 0),
                            partition=partition,
                        ),
                        9,
                    )
                    for number in range(400)
                )
            )
        for partition, client in enumerate(clients):
            for number in range(400):
                answer = client.receive(ProduceRequest, 9).responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, number)
            values = [record.value for record in read_all(client, "t", partition)]
            assert values == [b"%d" % number for number in range(400)]
            client.close()


def test_many_connections_with_one_request_outstanding(tmp_path: Path) -> None:
    """Compiled calls receive and send for these connections, with others in between."""
    with BrokerThread(tmp_path / "data", load_kernel=load_produce_kernel) as thread:
        load(thread)
        clients = [thread.client() for _ in range(30)]
        create_topic(clients[0], "t")
        found: list[int] = []
        for turn in range(20):
            for number, client in enumerate(clients):
                codec = Codec.GZIP if number == turn else Codec.NONE
                records = batch(b"%d" % (turn * 100 + number), codec=codec)
                client.send(produce_request("t", records), 9)
            for client in clients:
                answer = client.receive(ProduceRequest, 9).responses[0].partition_responses[0]
                assert answer.error_code == 0
                found.append(answer.base_offset)
            if turn == 10:
                clients.pop().close()
        assert sorted(found) == list(range(len(found)))
        assert planned(thread) > len(found) // 2
        values = {record.value for record in read_all(clients[0], "t")}
        assert len(values) == len(found)
        for client in clients:
            client.close()


def test_a_broker_at_rest_has_not_imported_numba() -> None:
    check = (
        "import sys, klog_broker.app, klog_broker.produce.kernel_loading;"
        "sys.exit(any(name in sys.modules for name in ('numba', 'llvmlite', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", check], check=False).returncode == 0
