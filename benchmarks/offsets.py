"""A coordinator's start, after ten million commits of 10,000 offsets and after a million offsets.

Both brokers have one partition of __consumer_offsets, are stopped cleanly, and start again; the
time ends with the response to the last group's OffsetFetch. klog's memory is that of its process.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from benchmarks import _brokers
from benchmarks._processes import peak_resident_bytes, resident_bytes
from benchmarks._report import print_row
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from pyspark_klog.client.admin.groups import committed_offsets
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.testing.ports import free_port
from tests.support.eventually import eventually

_TOPIC = "bench-offsets"
_PARTITIONS = 100
_COMMITS = 10_000_000
_KEYS = 10_000
_LIVE = 1_000_000
_VERSION = 8
_IN_FLIGHT = 16
_START_DEADLINE_S = 120.0
_END_DEADLINE_S = 60.0
_ASK_AGAIN_S = 0.005
_MEGABYTE = 1e6
# Retry often while a coordinator loads: by default the client waits 100 ms, then 200, and so on.
_ASKS_OFTEN = {"retry.backoff.ms": "5", "retry.backoff.max.ms": "5"}
_ONE_PARTITION = {"offsets.topic.num.partitions": "1"}


def run(_: argparse.Namespace) -> list[Row]:
    return [print_row(row) for row in _rows()]


def _rows() -> Iterator[Row]:
    keys = max(sized(_KEYS), _PARTITIONS)
    live = max(sized(_LIVE), _PARTITIONS)
    yield from _start_after(f"start behind {sized(_COMMITS):,} commits", keys, sized(_COMMITS), 1.0)
    yield from _start_after(f"start with {live:,} live offsets", live, live, 3.0)


def _start_after(work: str, keys: int, commits: int, bar_s: float) -> Iterator[Row]:
    groups = [f"group-{number}" for number in range(keys // _PARTITIONS)]
    rounds = max(commits // (len(groups) * _PARTITIONS), 1)
    with _klog() as klog, _kafka() as kafka:
        for broker in (klog, kafka):
            progress(f"{work}: committing to {broker.name}")
            broker.stop_after(lambda port: _commit(port, groups, rounds))
        progress(work)
        own, peer = in_turns(lambda: klog.start(groups[-1]), lambda: kafka.start(groups[-1]))
    seconds = median([each.seconds for each in own])
    note = f"{len(groups):,} groups of {_PARTITIONS} partitions; until the last one's are told"
    yield Row(
        work,
        "s",
        seconds,
        median([each.seconds for each in peer]),
        bar_s,
        lower_is_better=True,
        bar_is_absolute=True,
        note=note,
    )
    yield Row(
        f"{work}: resident then",
        "MB",
        median([each.resident_bytes for each in own]) / _MEGABYTE,
        median([each.resident_bytes for each in peer]) / _MEGABYTE,
        300.0,
        lower_is_better=True,
        bar_is_absolute=True,
        note=f"at most {max(each.peak_bytes for each in own) / _MEGABYTE:,.0f} MB meanwhile",
    )


# --- the commits ----------------------------------------------------------------------------------
def _commit(port: int, groups: Sequence[str], rounds: int) -> None:
    """Let each group commit all its offsets ``rounds`` times."""
    with BlockingClient({"bootstrap.servers": f"127.0.0.1:{port}"}) as client:
        Admin(client=client).create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])
        # This request creates __consumer_offsets, and waits for its coordinator.
        committed_offsets(client, groups[0])
    frames = [_frame(group) for group in groups]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        replies = connection.makefile("rb")
        connection.sendall(frames[0])
        good = _reply(replies)
        waiting = 0
        for number in range(rounds * len(frames)):
            connection.sendall(frames[number % len(frames)])
            waiting += 1
            if waiting == _IN_FLIGHT:
                _expect(replies, good)
                waiting -= 1
        for _ in range(waiting):
            _expect(replies, good)


def _frame(group: str) -> bytes:
    rows = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1_000_000 + number)
        for number in range(_PARTITIONS)
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=rows)]
    )
    header = RequestHeader(ApiKey.OFFSET_COMMIT, _VERSION, 1, "klog-bench")
    return bytes(encode_request(header, request))


def _reply(replies: BinaryIO) -> bytes:
    return replies.read(int.from_bytes(replies.read(4), "big"))


def _expect(replies: BinaryIO, good: bytes) -> None:
    reply = _reply(replies)
    if reply != good:
        raise RuntimeError(f"a commit was refused: {reply[:100]!r}")


# --- the brokers ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Started:
    seconds: float
    resident_bytes: int
    peak_bytes: int


@dataclass
class _Stopped:
    """A broker started by its command line; ``start`` runs it until the last group is loaded."""

    name: str
    command: Sequence[str]
    port: int
    folder: Path

    def stop_after(self, work: Callable[[int], None]) -> None:
        process = self._run()
        try:
            eventually(self._serves, _START_DEADLINE_S, f"{self.name} serving")
            work(self.port)
        finally:
            _end(process)

    def start(self, group: str) -> _Started:
        began = time.perf_counter()
        process = self._run()
        try:
            while not self._tells(group):
                if process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended with {process.returncode}")
                if time.perf_counter() - began > _START_DEADLINE_S:
                    raise RuntimeError(f"{self.name} did not load in {_START_DEADLINE_S:g} s")
                time.sleep(_ASK_AGAIN_S)
            seconds = time.perf_counter() - began
            return _Started(seconds, resident_bytes(process.pid), peak_resident_bytes(process.pid))
        finally:
            _end(process)

    def _run(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )

    def _serves(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def _tells(self, group: str) -> bool:
        if not self._serves():
            return False
        try:
            with BlockingClient(
                {"bootstrap.servers": f"127.0.0.1:{self.port}", **_ASKS_OFTEN}
            ) as client:
                return len(committed_offsets(client, group)) == _PARTITIONS
        except KlogError:
            return False


@contextmanager
def _klog() -> Iterator[_Stopped]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
        command = [sys.executable, "-P", "-m", "klog_broker", "--port", str(port)]
        command += ["--data", f"{folder}/data"]
        for name, value in _ONE_PARTITION.items():
            command += ["--set", f"{name}={value}"]
        yield _Stopped("klog", command, port, Path(folder))


@contextmanager
def _kafka() -> Iterator[_Stopped]:
    # A node of Kafka is formatted once; each start reuses the command line of its process.
    with _brokers.kafka_broker(_ONE_PARTITION) as kafka:
        command = Path(f"/proc/{kafka.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        folder = Path(f"/proc/{kafka.pid}/cwd").resolve()
        os.kill(kafka.pid, signal.SIGTERM)
        broker = _Stopped("Kafka", command, kafka.port, folder)
        eventually(lambda: not broker._serves(), _END_DEADLINE_S, "Kafka ending")
        yield broker


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
