"""The soak of klog lake: two writers of one table, killed again and again, beside a producer.

The producer writes transactions and aborts every third; the broker is killed, too. At the end the
table is compared with the topic, as librdkafka reads it: each committed record is there once. Then
unions of another table and its topic are queried (lake_unions.py).
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.soak import lake_unions
from tests.soak.lake_unions import WRITERS_LOG, end_of
from tests.support.lake import ICEBERG, KINDS, Lake, Transactions, table_rows, topic_rows

Say = Callable[[str], None]

_TOPIC = "soak"
_PARTITIONS = 2
_BROKER_KILL_EVERY = 7
_LEAST_PAUSE_S, _MOST_PAUSE_S = 1.5, 5.0
"""A writer needs about 1.5 seconds until its first commit."""
_LAST_RUN_S = 120


class _Producing:
    """A thread that writes transactions until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            # While the broker is dead, transactions fail: begin again with a new producer.
            with suppress(KafkaException, AssertionError):
                transactions = Transactions(self._servers, _TOPIC, _PARTITIONS)
                while not self._is_over.wait(0.05):
                    transactions.run(1, records=50)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def main(arguments: Sequence[str], say: Say) -> int:
    """Run the soak with both formats; return 0 if nothing was lost or doubled."""
    parser = argparse.ArgumentParser(prog="./dev soak lake")
    parser.add_argument("--kills", type=int, default=20, help="kills of writers, for each format")
    parser.add_argument("--queries", type=int, default=50, help="unions, for each format")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    given = parser.parse_args(arguments)
    chance = random.Random(given.seed)
    failed = False
    for kind in KINDS:
        for part, count in ((_soak, given.kills), (_unions, given.queries)):
            with tempfile.TemporaryDirectory(prefix="klog-soak-lake-") as folder:
                problem, proved = part(Lake(Path(folder)), kind, count, chance)
            failed = failed or bool(problem)
            verdict = "FAILED" if problem else "PASSED"
            say(f"{verdict}   {kind}, seed {given.seed}: {problem or proved}")
    return int(failed)


def _unions(lake: Lake, kind: str, queries: int, chance: random.Random) -> tuple[str, str]:
    def start_writer(servers: str) -> subprocess.Popen[bytes]:
        return _writer(lake, kind, servers)

    return lake_unions.soak(lake, kind, start_writer, queries, chance)


def _soak(lake: Lake, kind: str, kills: int, chance: random.Random) -> tuple[str, str]:
    pause = threading.Event()
    with testing.Broker(num_partitions=_PARTITIONS) as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(_TOPIC, num_partitions=_PARTITIONS)])
        producing = _Producing(broker.bootstrap_servers)
        writers = [_writer(lake, kind, broker.bootstrap_servers) for _ in range(2)]
        broker_kills = 0
        try:
            for number in range(1, kills + 1):
                pause.wait(chance.uniform(_LEAST_PAUSE_S, _MOST_PAUSE_S))
                victim = chance.randrange(2)
                if problem := end_of(lake, writers[victim]):
                    return problem, ""
                writers[victim].kill()
                writers[victim].wait()
                if number % _BROKER_KILL_EVERY == 0:
                    broker.kill()
                    broker.restart()
                    broker_kills += 1
                writers[victim] = _writer(lake, kind, broker.bootstrap_servers)
        finally:
            producing.stop()
            for writer in writers:
                writer.kill()
                writer.wait()
        last = _command(lake, kind, broker.bootstrap_servers, "--once")
        subprocess.run(last, check=True, timeout=_LAST_RUN_S, capture_output=True)
        expected = topic_rows(broker.bootstrap_servers, _TOPIC, _PARTITIONS)
        found = table_rows(lake.table(kind, _TOPIC))
    lost, doubled = expected - found, found - expected
    if lost or doubled:
        return f"{lost.total()} records lost, {doubled.total()} doubled or moved", ""
    return "", (
        f"{found.total():,} committed records, each once, through {kills} kills of writers and "
        f"{broker_kills} of the broker"
    )


def _writer(lake: Lake, kind: str, servers: str) -> subprocess.Popen[bytes]:
    command = _command(lake, kind, servers, "--roll-ms", "300", "--keep-snapshots", "20")
    output = (lake.folder / WRITERS_LOG).open("ab")
    with output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def _command(lake: Lake, kind: str, servers: str, *more: str) -> list[str]:
    config = lake.folder / "catalog.properties"
    values = lake.catalog(kind) if kind == ICEBERG else {}
    config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    command = [str(Path(sys.executable).with_name("klog")), "lake", "run", "--topic", _TOPIC]
    command += ["--bootstrap-server", servers, "--to", lake.place(kind)]
    return [*command, "--catalog-config", str(config), *more]
