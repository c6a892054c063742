"""The second half of the soak of klog lake: unions of a table and its topic beside a producer.

Three brokers hold the topic. Between the queries leaders change, brokers are killed, writers of the
table are killed, and the brokers delete records that the table has. Each query must find the
offsets of each partition from 0 to the last one, each once, and all records that were acknowledged
before it.
"""

import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import functions as f

import pyspark_klog
from pyspark_klog import testing
from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from tests.support.lake import Lake
from tests.support.spark.session import spark_session

StartWriter = Callable[[str], subprocess.Popen[bytes]]
"""Starts a writer of the table, with the brokers' addresses."""

WRITERS_LOG = "writers.log"
"""The file of the lake's folder with the output of writers."""
_TOPIC = "soak"
_PARTITIONS = 2
_DELETE_EVERY, _MOVE_EVERY, _KILL_WRITER_EVERY, _KILL_BROKER_EVERY = 4, 5, 7, 11
_PAUSE_S = 0.3


class _Producing:
    """A thread that writes records of one byte until it is stopped, and counts the acknowledged
    ones of each partition."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: Counter[int] = Counter()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(0.005):
            for _ in range(20):
                number += 1
                self._producer.produce(
                    _TOPIC, b"x", partition=number % _PARTITIONS, on_delivery=self._on_delivery
                )
            self._producer.poll(0)
        self._producer.flush(60)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()] += 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def soak(
    lake: Lake, kind: str, start_writer: StartWriter, queries: int, chance: random.Random
) -> tuple[str, str]:
    """Run the queries. Return the problem, "" if there is none, and what the run proved."""
    spark = spark_session()
    pyspark_klog.register(spark)
    counts: Counter[str] = Counter()
    with testing.KlogCluster(3, default_replication_factor=3) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(_TOPIC, num_partitions=_PARTITIONS)])
        lake.copy(servers, _TOPIC, kind)
        producing = _Producing(servers)
        writer = start_writer(servers)
        try:
            for number in range(1, queries + 1):
                threading.Event().wait(_PAUSE_S)
                if number % _DELETE_EVERY == 0:
                    counts["offsets deleted"] = _delete_copied(lake, kind, servers)
                if number % _MOVE_EVERY == 0:
                    _move_leader(cluster, chance)
                    counts["leaders moved"] += 1
                if number % _KILL_WRITER_EVERY == 0:
                    writer.kill()
                    writer.wait()
                    writer = start_writer(servers)
                    counts["writers killed"] += 1
                victim = None
                if number % _KILL_BROKER_EVERY == 0:
                    victim = chance.choice(cluster.brokers)
                    victim.kill()
                    counts["brokers killed"] += 1
                problem = _query(spark, lake, kind, servers, producing.acknowledged)
                if problem:
                    return f"query {number}: {problem}", ""
                if victim is not None:
                    victim.restart()
                if problem := end_of(lake, writer):
                    return problem, ""
        finally:
            producing.stop()
            writer.kill()
            writer.wait()
        problem = _query(spark, lake, kind, servers, producing.acknowledged)
    if problem:
        return f"the last query: {problem}", ""
    happened = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    return "", (
        f"{queries} unions beside a producer of {producing.acknowledged.total():,} records "
        f"({happened}): each found every offset once"
    )


def end_of(lake: Lake, writer: subprocess.Popen[bytes]) -> str:
    """Why a writer has ended by itself; "" if it still runs."""
    if writer.poll() is None:
        return ""
    [*_, last] = (lake.folder / WRITERS_LOG).read_text().splitlines()
    return f"a writer ended with exit code {writer.returncode}: {last}"


def _query(spark: Any, lake: Lake, kind: str, servers: str, acknowledged: Counter[int]) -> str:
    """Count the records of each partition in the union; return what is wrong, or ""."""
    before = dict(acknowledged)
    frame = pyspark_klog.lake(
        spark,
        lake.address(kind, _TOPIC),
        topic=_TOPIC,
        catalog=lake.catalog(kind),
        **{"kafka.bootstrap.servers": servers},
    )
    rows = frame.groupBy("partition").agg(
        f.count("*").alias("count"),
        f.count_distinct("offset").alias("different"),
        f.max("offset").alias("last"),
    )
    found = {row["partition"]: row for row in rows.collect()}
    for number, least in before.items():
        row = found.get(number)
        if row is None or not row["count"] == row["different"] == row["last"] + 1 >= least:
            return f"partition {number} has {row}, after {least} acknowledged records"
    return ""


def _delete_copied(lake: Lake, kind: str, servers: str) -> int:
    """Let the brokers delete what the table has; return how many offsets that is."""
    table = lake.table(kind, _TOPIC)
    head = table.load()
    assert head is not None, "the table was made before the first query"
    with BlockingClient({"bootstrap.servers": servers}) as client:
        delete_records(client, {TopicPartition(_TOPIC, n): at for n, at in head.border.items()})
    return sum(head.border.values())


def _move_leader(cluster: testing.KlogCluster, chance: random.Random) -> None:
    partition = chance.randrange(_PARTITIONS)
    with Admin(cluster.bootstrap_servers) as admin:
        found = admin.describe_topics([_TOPIC])[_TOPIC].partitions[partition]
    others = [each for each in found.in_sync if each != found.leader]
    cluster.move_leader(_TOPIC, partition, chance.choice(others))
