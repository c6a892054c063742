"""What the client says of a broker that it cannot reach: addresses, from where, what to check."""

import re
import socket
from typing import Any

import pytest

from pyspark_klog.client import blocking, sockets
from pyspark_klog.client.addresses import Address
from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.client.errors import ConnectionFailed, NoBrokerAvailable
from pyspark_klog.client.metadata import ClusterView
from pyspark_klog.client.settings import ClientSettings
from tests.support.refusing_broker import refusing_broker


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


def test_waits_before_a_connection_grow_and_begin_anew_once_it_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really_connect, is_refused, waits_ms = sockets.connect, True, []

    def connect(*arguments: Any) -> Any:
        if is_refused:
            raise ConnectionFailed("refused for the test")
        return really_connect(*arguments)

    def sleep(seconds: float) -> None:
        nonlocal now_ms
        waits_ms.append(round(seconds * 1000))
        now_ms += waits_ms[-1]

    def refused(times: int) -> list[int]:
        waits_ms.clear()
        for _ in range(times):
            with pytest.raises(ConnectionFailed):
                client.link_to(address, client.deadline(100_000))
        return list(waits_ms)

    now_ms = 0
    monkeypatch.setattr(blocking, "connect", connect)
    with (
        refusing_broker() as servers,
        BlockingClient(
            {
                "bootstrap.servers": servers,
                "reconnect.backoff.ms": "50",
                "reconnect.backoff.max.ms": "1000",
            },
            now_ms=lambda: now_ms,
            sleep=sleep,
            random=lambda: 0.5,
        ) as client,
    ):
        [address] = client.bootstrap
        assert refused(7) == [50, 100, 200, 400, 800, 1000]
        is_refused = False
        client.link_to(address, client.deadline(100_000)).close()
        is_refused = True
        assert refused(3) == [50, 100]


def test_the_cluster_names_an_address_that_cannot_be_reached() -> None:
    with refusing_broker() as servers, BlockingClient({"bootstrap.servers": servers}) as client:
        client.refresh(["t"])
        client.view = ClusterView(brokers={7: Address("127.0.0.1", 1)})
        with pytest.raises(
            ConnectionFailed,
            match=r"^could not connect to 127\.0\.0\.1:1: Connection refused \(the address that "
            r"the cluster gives for broker 7, its advertised\.listeners, must be reachable from ",
        ):
            client.link_to_broker(7, client.deadline(1_000))
