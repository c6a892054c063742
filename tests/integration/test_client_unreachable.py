"""The client's errors for unreachable brokers: addresses, the source of these, what to check."""

import re
import socket
from typing import Any

import pytest

from pyspark_klog import testing
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import ClusterView
from pyspark_klog.client.errors import ConnectionFailed, NoBrokerAvailable, TimedOut
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.discovery import Discovery


def test_no_address_answers() -> None:
    settings = ClientSettings({"bootstrap.servers": "127.0.0.1:1,[::1]:2"}, prefix="kafka.")
    host = re.escape(socket.gethostname())
    with (
        BlockingClient(settings) as client,
        pytest.raises(
            NoBrokerAvailable,
            match=r"^no broker could be reached: could not connect to 127\.0\.0\.1:1: Connection "
            r"refused; could not connect to \[::1\]:2: [^;]*; check kafka\.bootstrap\.servers, and "
            rf"whether these addresses can be reached from {host}$",
        ),
    ):
        client.link_to_any(client.deadline(1_000))


def test_a_silent_first_server_leaves_time_for_the_others(
    klog_broker: testing.Broker, klog_topic: str
) -> None:
    """The client goes on to the next server although request.timeout.ms, 30 s, is longer than the
    time that the operation has."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{klog_broker.bootstrap_servers}"
        settings = {"bootstrap.servers": servers, "default.api.timeout.ms": "2000"}
        with BlockingClient(settings) as client:
            assert client.refresh([klog_topic]).brokers


def test_each_silent_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            BlockingClient({"bootstrap.servers": f"127.0.0.1:{port},localhost:{port}"}) as client,
            pytest.raises(
                TimedOut,
                match=rf"^127\.0\.0\.1:{port} did not answer in time: asking for versions; "
                rf"localhost:{port} did not answer in time: asking for versions$",
            ),
        ):
            client.link_to_any(client.deadline(200))


def test_waits_before_a_connection_grow_and_start_again_once_it_was_made(
    klog_broker: testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused, waits_ms = True, []
    really_connect = socket.create_connection

    def connect(*arguments: Any, **options: Any) -> Any:
        if is_refused:
            raise OSError("refused for the test")
        return really_connect(*arguments, **options)

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        waits_ms.append(round(seconds * 1000))
        now_ms += waits_ms[-1]

    def refused(times: int) -> list[int]:
        waits_ms.clear()
        for _ in range(times):
            with pytest.raises(ConnectionFailed):
                client.links.link_to(address, client.deadline(100_000))
        return list(waits_ms)

    now_ms = 0
    monkeypatch.setattr(socket, "create_connection", connect)
    with BlockingClient(
        {
            "bootstrap.servers": klog_broker.bootstrap_servers,
            "reconnect.backoff.ms": "50",
            "reconnect.backoff.max.ms": "1000",
        },
        now_ms=lambda: now_ms,
        sleep=sleep,
        random=lambda: 0.5,
    ) as client:
        [address] = client.bootstrap
        assert refused(7) == [50, 100, 200, 400, 800, 1000]
        is_refused = False
        client.links.link_to(address, client.deadline(100_000)).close()
        is_refused = True
        assert refused(3) == [50, 100]


def test_the_cluster_names_an_address_that_cannot_be_reached(
    klog_broker: testing.Broker, klog_topic: str
) -> None:
    with BlockingClient({"bootstrap.servers": klog_broker.bootstrap_servers}) as client:
        client.refresh([klog_topic])
        client.view = ClusterView(brokers={7: Address("127.0.0.1", 1)})
        with pytest.raises(
            ConnectionFailed,
            match=r"^could not connect to 127\.0\.0\.1:1: Connection refused \(the address that "
            r"the cluster gives for broker 7, its advertised\.listeners, must be reachable from ",
        ):
            client.link_to_broker(7, client.deadline(1_000))


class _Clock:
    """A clock that moves only during sleeps."""

    def __init__(self) -> None:
        self.now_ms = 0

    def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1_000)

    def client(self, **options: str) -> BlockingClient:
        settings = ClientSettings({"bootstrap.servers": "127.0.0.1:1"} | options, prefix="kafka.")
        return BlockingClient(
            settings, now_ms=lambda: self.now_ms, sleep=self.sleep, random=lambda: 0.5
        )


def test_a_closed_port_is_logged_at_once_and_then_seldom(caplog: pytest.LogCaptureFixture) -> None:
    clock = _Clock()
    with clock.client() as client, pytest.raises(TimedOut):
        client.refresh(["t"])
    assert 59_000 <= clock.now_ms <= 61_000
    first, *later = caplog.messages
    assert first.startswith(
        "asking for the cluster's metadata has failed and is tried again for up to 60 s "
        "(kafka.default.api.timeout.ms): no broker could be reached: could not connect to "
        "127.0.0.1:1: Connection refused; "
    )
    assert [re.findall(r"has failed for (\d+ s)", text) for text in later] == [
        ["6 s"],
        ["16 s"],
        ["36 s"],
    ]


def test_a_source_that_waits_for_brokers_says_for_how_long_in_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = _Clock()
    options = read_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    with clock.client() as client, pytest.raises(TimedOut):
        Discovery(client, options.for_stream()).partitions()
    assert 178_000 <= clock.now_ms <= 182_000
    assert caplog.messages[0].startswith(
        "asking for topics and offsets has failed and is tried again for up to 182 s "
        "(kafka.default.api.timeout.ms, fetchOffset.numRetries times): no broker could be reached"
    )
    assert len(caplog.messages) == 6


def test_a_connection_takes_no_longer_than_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def drop(_address: object, timeout: float) -> socket.socket:
        timeouts.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", drop)
    clock = _Clock()
    for timeout_ms in (60_000, 700):
        with clock.client() as client, pytest.raises(ConnectionFailed, match="timed out"):
            client.links.link_to(Address("127.0.0.1", 1), client.deadline(timeout_ms))
    assert timeouts == [10.0, 0.7]


def test_all_addresses_of_a_host_take_no_longer_than_the_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[tuple[str, float]] = []
    clock = _Clock()

    def drop(address: tuple[str, int], timeout: float) -> socket.socket:
        attempts.append((address[0], timeout))
        clock.sleep(timeout)
        raise TimeoutError("timed out")

    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 9)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.2", 9)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 9, 0, 3)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", drop)
    with clock.client() as client, pytest.raises(ConnectionFailed, match="timed out"):
        client.links.link_to(Address("kafka", 9), client.deadline(12_000))
    assert attempts == [("10.0.0.1", 10.0), ("10.0.0.2", 2.0), ("fe80::1%3", 0.001)]
