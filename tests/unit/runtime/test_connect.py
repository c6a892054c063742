"""Outgoing connections on loopback: how they end is known when the poller says WRITABLE."""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from klog_broker.runtime.net.poller import (
    BROKEN,
    WRITABLE,
    EpollPoller,
    Poller,
    SelectorPoller,
)
from klog_broker.runtime.net.sockets import RealNetwork, RealStreamSocket, StreamSocket

_DEADLINE_MS = 10_000
_POLLERS: list[Callable[[], Poller]] = [SelectorPoller]
if sys.platform == "linux":
    _POLLERS.append(EpollPoller)


@pytest.fixture(params=_POLLERS)
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    make: Callable[[], Poller] = request.param
    with closing(make()) as made:
        yield made


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(_DEADLINE_MS / 1000)
        yield made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def outcome(poller: Poller, stream: StreamSocket) -> OSError | None:
    poller.register(stream.fileno(), WRITABLE)
    ready = poller.poll(_DEADLINE_MS)
    poller.unregister(stream.fileno())
    assert [(fd, events & ~BROKEN) for fd, events in ready] == [(stream.fileno(), WRITABLE)]
    return stream.connect_error()


def test_a_stream_that_connects_sends_and_receives(poller: Poller, listener: socket.socket) -> None:
    address = listener.getsockname()
    with closing(RealNetwork().connect(*address)) as stream:
        assert outcome(poller, stream) is None
        assert stream.remote_address() == address
        accepted, remote = listener.accept()
        with accepted:
            assert stream.local_address() == remote
            assert stream.send([b"to ", b"you"]) == 6
            assert accepted.recv(100) == b"to you"
            with pytest.raises(BlockingIOError):
                stream.recv_into(memoryview(bytearray(10)))


def test_it_comes_from_the_address_that_was_asked_for(
    poller: Poller, listener: socket.socket
) -> None:
    host, port = listener.getsockname()
    with closing(RealNetwork().connect(host, port, from_address="127.0.0.2")) as stream:
        assert outcome(poller, stream) is None
        accepted, remote = listener.accept()
        with accepted:
            assert remote == stream.local_address()
            assert remote[0] == "127.0.0.2"


def test_a_port_where_nobody_listens_refuses(poller: Poller) -> None:
    with closing(RealNetwork().connect("127.0.0.1", free_port())) as stream:
        assert isinstance(outcome(poller, stream), ConnectionRefusedError)


def test_an_address_of_another_machine_cannot_be_connected_from(
    listener: socket.socket,
) -> None:
    with pytest.raises(OSError, match="assign"):
        RealNetwork().connect(*listener.getsockname(), from_address="192.0.2.1")


@pytest.mark.parametrize(("host", "from_address"), [("localhost", None), ("127.0.0.1", "me")])
def test_names_are_not_looked_up(host: str, from_address: str | None) -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        RealNetwork().connect(host, 1, from_address)


def test_ipv6(poller: Poller) -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python is built without IPv6")
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    with server, closing(RealNetwork().connect(*server.getsockname()[:2])) as stream:
        assert isinstance(stream, RealStreamSocket)
        assert outcome(poller, stream) is None
        assert stream.remote_address() == server.getsockname()[:2]
