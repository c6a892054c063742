"""Compiled receives and sends, on real sockets: data, no data, and closed connections."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from klog_broker.runtime.net import socket_kernel
from klog_broker.runtime.net.socket_calls import ARENA_FULL, MAX_SOCKETS
from klog_broker.runtime.net.sockets import RealNetwork

_ARENA_BYTES = 64 * 1024
_REPLIES = bytes(range(256)) * 4096


class World:
    """Pairs of sockets, the broker's non-blocking, and the calls."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.arena = memoryview(bytearray(_ARENA_BYTES))
        calls = RealNetwork().socket_calls(self.arena, memoryview(bytearray(_REPLIES)))
        assert isinstance(calls, socket_kernel.SocketKernel)
        self.calls = calls

    def pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = (self._stack.enter_context(each) for each in socket.socketpair())
        ours.setblocking(False)
        return ours, theirs


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


def test_what_has_come_lies_one_behind_the_other(world: World) -> None:
    pairs = [world.pair() for _ in range(50)]
    for number, (_, theirs) in enumerate(pairs):
        theirs.sendall(b"%03d" % number * (number % 3))
    counts = world.calls.receive([ours.fileno() for ours, _ in pairs], 7, 1000, 1)
    assert counts == [(number % 3) * 3 or -1 for number in range(50)]
    expected = b"".join(b"%03d" % number * (number % 3) for number in range(50))
    assert bytes(world.arena[7 : 7 + len(expected)]) == expected


def test_a_share_is_not_passed_and_the_rest_comes_next_time(world: World) -> None:
    ours, theirs = world.pair()
    theirs.sendall(b"x" * 100 + b"y" * 50)
    assert world.calls.receive([ours.fileno()], 0, 100, 1) == [100]
    assert world.calls.receive([ours.fileno()], 0, 100, 1) == [50]
    assert bytes(world.arena[:51]) == b"y" * 50 + b"x"


def test_with_a_full_buffer_nothing_is_received(world: World) -> None:
    pairs = [world.pair() for _ in range(3)]
    for _, theirs in pairs:
        theirs.sendall(b"x" * 100)
    descriptors = [ours.fileno() for ours, _ in pairs]
    start = _ARENA_BYTES - 150
    assert world.calls.receive(descriptors, start, 100, 60) == [100, ARENA_FULL, ARENA_FULL]
    assert pairs[1][0].recv(1000) == b"x" * 100


def test_the_end_of_a_stream_and_a_socket_that_is_closed(world: World) -> None:
    (ended, theirs), (closed, _), (good, other) = (world.pair() for _ in range(3))
    theirs.close()
    number = closed.fileno()
    closed.close()
    other.sendall(b"good")
    descriptors = [ended.fileno(), number, good.fileno()]
    assert world.calls.receive(descriptors, 0, 100, 1) == [0, -1, 4]
    assert world.calls.send(descriptors, [0, 0, 5], [3, 3, 3]) == [-1, -1, 3]
    assert other.recv(100) == _REPLIES[5:8]


def test_a_socket_that_takes_no_more_says_how_much_it_took(world: World) -> None:
    ours, _ = world.pair()
    fine, theirs = world.pair()
    sent = -1
    counts = [len(_REPLIES)]
    while counts[0] >= 0:
        sent += counts[0]
        counts = world.calls.send([ours.fileno(), fine.fileno()], [0, 1], [len(_REPLIES), 2])
        assert theirs.recv(100) == _REPLIES[1:3]
    assert counts == [-1, 2]
    assert sent > 0


def test_as_many_as_one_call_takes(world: World) -> None:
    ours, theirs = world.pair()
    theirs.sendall(bytes(10) * MAX_SOCKETS)
    assert world.calls.receive([ours.fileno()] * MAX_SOCKETS, 0, 10, 1) == [10] * MAX_SOCKETS
    assert world.calls.receive([], 0, 10, 1) == []
