"""Unpickling a task's code acknowledges the bytes that Spark sends to the worker."""

import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_klog import DefaultSource
from pyspark_klog.spark.workers import tcp_acknowledgement
from tests.support.eventually import eventually

_ROWS = StructType([StructField("value", BinaryType())])
_SERVERS = {"kafka.bootstrap.servers": "nowhere:1"}


def _source(**options: str) -> DefaultSource:
    return DefaultSource({**_SERVERS, **options})


def _reader(**options: str) -> Any:
    source = _source(**options)
    return source.reader(source.schema())


def _stream_reader() -> Any:
    source = _source(subscribe="t")
    return source.streamReader(source.schema())


SENT: dict[str, Callable[[], Any]] = {
    "batch": lambda: _reader(subscribe="t"),
    "segment files": lambda: _reader(subscribe="t", path="/data"),
    "table": lambda: _reader(table="topics"),
    "stream": _stream_reader,
    "batch sink": lambda: _source(topic="t").writer(_ROWS, overwrite=False),
    "stream sink": lambda: _source(topic="t").streamWriter(_ROWS, overwrite=False),
}


@pytest.fixture
def worker() -> Iterator[socket.socket]:
    """A worker's end of a connection on which it has sent data: its system delays ACKs.

    All received bytes are acknowledged: the timer of a delayed ACK would end that state after
    40 ms, in the middle of a test on a busy machine.
    """
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.create_connection(server.getsockname())) as worker,
    ):
        jvm, _ = server.accept()
        with closing(jvm):
            eventually(lambda: _puts_off_after_an_answer(jvm, worker), what="ACKs that are put off")
            yield worker


def _puts_off_after_an_answer(jvm: socket.socket, worker: socket.socket) -> bool:
    jvm.sendall(b"a task")
    assert worker.recv(100)
    worker.sendall(b"its rows")
    assert jvm.recv(100)
    return not _acknowledges_at_once(worker)


def _acknowledges_at_once(worker: socket.socket) -> bool:
    return worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) != 0


@pytest.mark.parametrize("side", SENT)
def test_code_that_arrives_is_acknowledged(worker: socket.socket, side: str) -> None:
    sent = SENT[side]()
    pickled = pickle.dumps(sent)
    assert not _acknowledges_at_once(worker)
    arrived = pickle.loads(pickled)
    assert _acknowledges_at_once(worker)
    assert type(arrived) is type(sent)
    assert vars(arrived).keys() == vars(sent).keys()
    assert arrived._options == sent._options


def test_systems_without_such_an_option_are_not_changed(
    worker: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickack = socket.TCP_QUICKACK
    monkeypatch.delattr(socket, "TCP_QUICKACK")
    tcp_acknowledgement.acknowledge()
    assert worker.getsockopt(socket.IPPROTO_TCP, quickack) == 0
    monkeypatch.undo()
    monkeypatch.setattr(tcp_acknowledgement, "_FDS", Path("/nowhere"))
    tcp_acknowledgement.acknowledge()
    assert not _acknowledges_at_once(worker)


def test_other_files_and_sockets_stay_as_they_are(worker: socket.socket, tmp_path: Path) -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other), (tmp_path / "file").open("wb") as file:
        tcp_acknowledgement.acknowledge()
        one.sendall(b"x")
        assert other.recv(1) == b"x"
        file.write(b"x")
    worker.sendall(b"still open")
