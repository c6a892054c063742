"""Functions, compiled by numba ("kernels"), that receive or send for many connections.

Each request of a connection with one outstanding request costs one recv and one send. Calling recv
or send from Python doubles the time of the system call. A call from compiled code does not, and
releases Python's lock (GIL). This module handles no errors: if a call fails for a connection, the
connection repeats the call from Python on its own socket and gets the error there.

numba finds the system's functions by name when it loads a kernel, because a pointer to a function
could not be stored in the kernels' cache. Linux only: the kernels need the flags MSG_DONTWAIT and
MSG_NOSIGNAL, which not every system has.
"""

from __future__ import annotations

import socket
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from klog_broker.runtime.net.socket_calls import ARENA_FULL, MAX_SOCKETS
from pyspark_klog.records.kernels.jit import COMPILED, Array, inline, kernel, numba

IS_COMPILED = COMPILED and sys.platform.startswith("linux")
"""Whether `SocketKernel` works: numba can compile kernels, and the system is Linux."""

# A call of a compiled function gets a table, one array with three columns that begin at these
# indices: the sockets, the starts of their parts of the buffer, and the sizes. A size is the number
# of bytes to send; the call replaces it by the number of bytes sent or received.
_SOCKETS_AT = 0
_STARTS_AT = MAX_SOCKETS
_SIZES_AT = 2 * MAX_SOCKETS
_WORDS = 3 * MAX_SOCKETS
_WORD_BYTES = 8


def _make_call(name: str) -> Any:
    """Declare the C function `ssize_t NAME(int, void *, size_t, int)` for functions that numba
    compiles."""
    types = numba.types
    return types.ExternalFunction(
        name, types.int64(types.int32, types.intp, types.int64, types.int32)
    )


if IS_COMPILED:
    _recv: Any = _make_call("recv")
    _send: Any = _make_call("send")
    _RECEIVE_FLAGS = int(socket.MSG_DONTWAIT)
    _SEND_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
else:
    # Placeholders: without numba, or on a system other than Linux, no code calls the functions
    # below.
    _recv = _send = None
    _RECEIVE_FLAGS = _SEND_FLAGS = 0


@inline
def _receive(table: Array, count: int, buffer: Array, start: int, share: int, least: int) -> int:
    at = start
    for i in range(count):
        room = min(share, len(buffer) - at)
        if room < least:
            table[_SIZES_AT + i] = ARENA_FULL
            continue
        got = _recv(table[_SOCKETS_AT + i], buffer.ctypes.data + at, room, _RECEIVE_FLAGS)
        table[_SIZES_AT + i] = got
        if got > 0:
            at += got
    return at


@inline
def _send_all(table: Array, count: int, buffer: Array) -> int:
    sent_bytes = 0
    for i in range(count):
        sent = _send(
            table[_SOCKETS_AT + i],
            buffer.ctypes.data + table[_STARTS_AT + i],
            table[_SIZES_AT + i],
            _SEND_FLAGS,
        )
        table[_SIZES_AT + i] = sent
        if sent > 0:
            sent_bytes += sent
    return sent_bytes


if IS_COMPILED:

    @kernel("out64", "i64", "out8", "i64", "i64", "i64")
    def receive_all(
        table: Array, count: int, buffer: Array, start: int, share: int, least: int
    ) -> int:
        """Receive once from each of the first ``count`` sockets of ``table``, up to ``share``
        bytes, into ``buffer``.

        The received bytes lie one after another from ``start`` on. A socket is skipped (ARENA_FULL)
        if fewer than ``least`` bytes of ``buffer`` are free. Writes to ``table`` how many bytes
        each socket received. Returns the position after the last received byte.
        """
        return _receive(table, count, buffer, start, share, least)

    @kernel("out64", "i64", "out8")
    def send_all(table: Array, count: int, buffer: Array) -> int:
        """Send once to each of the first ``count`` sockets of ``table``. The table has the start
        and the size of the part of ``buffer`` for each socket.

        Replaces each size in the table by the number of bytes sent, or -1 if the send failed.
        Returns the sum of the bytes sent.
        """
        return _send_all(table, count, buffer)


class SocketKernel:
    """Implements SocketCalls with compiled functions. Receives into ``arena``, the buffer for
    received bytes, and sends from the buffer ``responses``."""

    def __init__(self, arena: memoryview, responses: memoryview) -> None:
        self._arena = np.frombuffer(arena, np.uint8)
        self._responses = np.frombuffer(responses, np.uint8)
        memory = bytearray(_WORDS * _WORD_BYTES)
        self._words = memoryview(memory).cast("q")
        self._table = np.frombuffer(memory, np.int64)

    def receive(
        self, descriptors: Sequence[int], start: int, share_bytes: int, least_bytes: int
    ) -> list[int]:
        count = len(descriptors)
        self._put(_SOCKETS_AT, descriptors)
        receive_all(self._table, count, self._arena, start, share_bytes, least_bytes)
        return self._words[_SIZES_AT : _SIZES_AT + count].tolist()

    def send(
        self, descriptors: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        count = len(descriptors)
        self._put(_SOCKETS_AT, descriptors)
        self._put(_STARTS_AT, starts)
        self._put(_SIZES_AT, sizes)
        send_all(self._table, count, self._responses)
        return self._words[_SIZES_AT : _SIZES_AT + count].tolist()

    def _put(self, at: int, values: Sequence[int]) -> None:
        self._words[at : at + len(values)] = memoryview(array("q", values))
