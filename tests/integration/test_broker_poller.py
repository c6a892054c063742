"""Both pollers alike, over real descriptors; and the broker on the plain one."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog_broker.runtime.net.poller import (
    BROKEN,
    READABLE,
    WRITABLE,
    EpollPoller,
    Poller,
    SelectorPoller,
)
from tests.support.broker_thread import BrokerThread
from tests.support.raw_requests import (
    batch,
    create_topic,
    fetch_request,
    first_partition,
    produced,
    read_all,
    records_of,
)


@pytest.fixture(params=[EpollPoller, SelectorPoller])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_the_poller_reports_ready_descriptors(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READABLE)
    assert poller.poll(0) == []
    theirs.send(b"x")
    assert poller.poll(1000) == [(ours.fileno(), READABLE)]
    assert poller.poll(1000) == [(ours.fileno(), READABLE)]
    poller.modify(ours.fileno(), READABLE | WRITABLE)
    assert poller.poll(1000) == [(ours.fileno(), READABLE | WRITABLE)]
    poller.modify(ours.fileno(), 0)
    assert poller.poll(0) == []
    poller.modify(ours.fileno(), READABLE)
    assert poller.poll(1000) == [(ours.fileno(), READABLE)]
    poller.unregister(ours.fileno())
    assert poller.poll(0) == []


@pytest.mark.parametrize("make", [EpollPoller, SelectorPoller])
def test_waking_a_closed_poller_touches_nothing(make: Callable[[], Poller], tmp_path: Path) -> None:
    """A signal can come when the broker has ended, and the descriptor can be another file's."""
    poller = make()
    poller.close()
    paths = [tmp_path / f"{number}" for number in range(8)]
    files = [path.open("wb") for path in paths]
    poller.wake()
    for file in files:
        file.close()
    assert [path.read_bytes() for path in paths] == [b""] * len(paths)


def test_a_closed_peer_is_reported(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), READABLE)
    theirs.close()
    ((fd, events),) = poller.poll(1000)
    assert fd == ours.fileno()
    assert events & READABLE


def test_epoll_reports_a_broken_connection_nobody_asks_about(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    poller = EpollPoller()
    poller.register(ours.fileno(), 0)
    theirs.close()
    assert poller.poll(1000) == [(ours.fileno(), BROKEN)]
    poller.close()


def test_wake_ends_a_poll_from_another_thread(poller: Poller) -> None:
    returned = threading.Event()

    def wait() -> None:
        poller.poll(None)
        returned.set()

    thread = threading.Thread(target=wait)
    thread.start()
    poller.wake()
    assert returned.wait(10)
    thread.join()


def test_wake_before_a_poll_ends_that_one_and_no_other(poller: Poller) -> None:
    for _ in range(3):
        poller.wake()
    assert poller.poll(10_000) == []
    assert poller.poll(0) == []


@pytest.mark.parametrize("make_poller", [EpollPoller, SelectorPoller])
def test_the_broker_serves_on_either(tmp_path: Path, make_poller: Callable[[], Poller]) -> None:
    with BrokerThread(tmp_path / "data", poller=make_poller()) as thread:
        clients = [thread.client() for _ in range(10)]
        create_topic(clients[0], "t", partitions=10)
        for partition, client in enumerate(clients):
            for number in range(20):
                produced(client, "t", batch(b"%d" % number * 100), partition=partition)
        for partition, client in enumerate(clients):
            assert len(read_all(client, "t", partition)) == 20
        request = fetch_request("t", offset=20, max_wait_ms=60_000)
        clients[1].send(request, 12)
        produced(clients[0], "t", batch(b"late"))
        assert len(records_of(first_partition(clients[1].receive(request, 12)))) == 1
        produced(clients[2], "t", batch(b"x" * 1_000_000))
        big = fetch_request("t", offset=21, partition_max_bytes=2_000_000)
        data = first_partition(clients[3].call(big, 12))
        assert records_of(data)[0].value == b"x" * 1_000_000
        for client in clients:
            client.close()
