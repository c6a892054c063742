"""The links between processes that a soak cuts: held data, late data, ended connections."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.soak.cluster.proxies import Ways
from tests.support.eventually import eventually

ONE, OTHER = 1, 2


@pytest.fixture
def ways() -> Iterator[Ways]:
    with contextlib.closing(Ways()) as made:
        yield made


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back all that it receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                while piece := connection.recv(4096):
                    connection.sendall(piece)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)


def connected(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 10, source_address=("127.0.0.1", 0))
    made.settimeout(0.2)
    return made


def arrives(connection: socket.socket, expected: bytes) -> None:
    received = b""

    def is_there() -> bool:
        nonlocal received
        with contextlib.suppress(TimeoutError):
            received += connection.recv(4096)
        return received == expected

    eventually(is_there, 10, f"{expected!r}")


def nothing_arrives(connection: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        connection.recv(4096)


def test_what_is_sent_on_a_whole_way_arrives(ways: Ways, echo: tuple[str, int]) -> None:
    with connected(ways.to(OTHER, echo)) as connection:  # from 127.0.0.1: it is ONE
        connection.sendall(b"a")
        arrives(connection, b"a")


@pytest.mark.parametrize(
    "cut",
    [
        lambda ways: ways.split(ONE, OTHER),
        lambda ways: ways.cut(ONE, OTHER),
        lambda ways: ways.cut(OTHER, ONE),
    ],
    ids=["split", "one way", "the other way"],
)
def test_what_is_sent_on_a_way_that_is_cut_arrives_when_it_is_whole(
    ways: Ways, echo: tuple[str, int], cut: Callable[[Ways], None]
) -> None:
    port = ways.to(OTHER, echo)
    with connected(port) as before:
        before.sendall(b"a")
        arrives(before, b"a")
        cut(ways)
        before.sendall(b"b")
        nothing_arrives(before)
        with connected(port) as later:
            later.sendall(b"c")
            nothing_arrives(later)
            ways.heal()
            arrives(later, b"c")
        arrives(before, b"b")


def test_others_are_not_concerned(ways: Ways, echo: tuple[str, int]) -> None:
    third = ways.to(OTHER, echo, sender=3)
    ways.split(ONE, OTHER)
    with connected(third) as connection:
        connection.sendall(b"a")
        arrives(connection, b"a")
        ways.split(3, OTHER)
        connection.sendall(b"b")
        nothing_arrives(connection)


def test_connections_that_break_end_and_new_ones_work(ways: Ways, echo: tuple[str, int]) -> None:
    port = ways.to(OTHER, echo)
    with connected(port) as connection:
        connection.sendall(b"a")
        arrives(connection, b"a")
        ways.break_all()
        with pytest.raises(ConnectionResetError):
            connection.recv(4096)
    with connected(port) as connection:
        connection.sendall(b"b")
        arrives(connection, b"b")


def test_a_target_without_a_listener_is_not_reached(ways: Ways) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = ways.to(OTHER, nobody.getsockname())
        with pytest.raises(ConnectionResetError), connected(port) as connection:
            connection.recv(4096)
