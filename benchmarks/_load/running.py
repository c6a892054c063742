"""The parts that all jobs of the load generator share: connections, a CPU clock, response texts."""

import platform
import socket
import time
from typing import Any

import numpy as np

from benchmarks._load.jobs import Measured, Target
from benchmarks._load.libc import SCRATCH_WORDS
from benchmarks._processes import cpu_seconds
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey

_CONNECT_TIMEOUT_S = 10.0
_SHOWN_BYTES = 400
# struct epoll_event is packed on x86-64 only: events 4, then the socket's number.
_IS_PACKED = platform.machine() in ("x86_64", "AMD64")
EVENT_BYTES, EVENT_FD_AT = (12, 4) if _IS_PACKED else (16, 8)


Array = Any


class Clock:
    """Time and CPU time of a stretch of code, for this process and for the broker (or brokers)."""

    def __init__(self, target: Target) -> None:
        self._pids = target.pids
        self._broker_s = self._brokers_s()
        self._own_s = time.process_time()
        self._start_s = time.perf_counter()

    def stop(self, requests: int, records: int, log_bytes: int) -> Measured:
        seconds = time.perf_counter() - self._start_s
        own_s = time.process_time() - self._own_s
        broker_s = self._brokers_s() - self._broker_s
        return Measured(seconds, own_s, broker_s, requests, records, log_bytes)

    def _brokers_s(self) -> float:
        return sum(cpu_seconds(pid) for pid in self._pids)


def scratch() -> Array:
    return np.zeros(SCRATCH_WORDS, np.int64)


def connect(target: Target) -> socket.socket:
    sock = socket.create_connection((target.host, target.port), _CONNECT_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(None)
    return sock


def show_reply(received: bytes, api_key: ApiKey, version: int) -> str:
    size = int.from_bytes(received[:4], "big", signed=True)
    try:
        return repr(decode_response(received[4 : 4 + size], api_key, version))
    except KlogError as error:
        return f"{received[:_SHOWN_BYTES].hex()} ({error})"
