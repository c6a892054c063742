"""A data directory that Apache Kafka wrote, with one of everything that can be looked at in it."""

import re
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.support.kafka.dump_log_segments import MAIN_CLASSES
from tests.support.peers import KafkaServer, run_tool

SMALL_SEGMENTS = {
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "256",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
SUFFIXES = ("log", "index", "timeindex", "snapshot", "txnindex")


def write_everything(servers: str, *, records: int = 60) -> None:
    """Records with keys and headers, transactions that commit, abort and stay open, offsets that
    are committed, in transactions too, and a group that is deleted."""
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic("plain", 1, 1), NewTopic("tx", 1, 1)]
    for done in admin.create_topics(topics).values():
        done.result()
    _write_plain(servers, records)
    _write_transactions(servers)
    group = _consumer(servers, "gone")
    group.commit(offsets=[TopicPartition("plain", 0, 1)], asynchronous=False)
    group.close()
    for done in admin.delete_consumer_groups(["gone"]).values():
        done.result()


def _write_plain(servers: str, records: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "lz4"}
    )
    for number in range(records):
        producer.produce(
            "plain",
            key=f"schlüssel-{number}".encode(),
            value=b"v%d" % number * (number % 7) if number % 10 else None,
            headers={"trace": b"%d" % number, "empty": None} if number % 3 == 0 else None,
            timestamp=1_600_000_000_000 + number * 1_000,
        )
        if number % 10 == 0:
            producer.flush()
    producer.flush()


def _write_transactions(servers: str) -> None:
    producer = _transactional(servers, "tid-1")
    group = _consumer(servers, "readers")
    group.subscribe(["plain"])
    while group.poll(10) is None:
        pass
    for number in range(4):
        producer.begin_transaction()
        for record in range(3):
            producer.produce("tx", value=b"%d-%d" % (number, record))
        producer.flush()
        if number == 2:
            position = [TopicPartition("plain", 0, 7)]
            producer.send_offsets_to_transaction(position, group.consumer_group_metadata())
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    group.commit(offsets=[TopicPartition("plain", 0, 9)], asynchronous=False)
    group.close()
    opened = _transactional(servers, "tid-2")
    opened.begin_transaction()
    opened.produce("tx", value=b"open")
    opened.flush()


def _transactional(servers: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions()
    return producer


def _consumer(servers: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def log_files(folder: Path) -> list[Path]:
    """The files of a partition that Kafka's tool knows."""
    return sorted(path for path in folder.iterdir() if path.suffix[1:] in SUFFIXES)


def decoder_option(folder: Path) -> list[str]:
    """Return the option of DumpLogSegments for a partition's records; klog sees it by the name."""
    if folder.name.startswith("__consumer_offsets-"):
        return ["--offsets-decoder"]
    if folder.name.startswith("__transaction_state-"):
        return ["--transaction-log-decoder"]
    return ["--print-data-log"]


def kafkas_dump(version: str, files: Sequence[Path], *options: str) -> str:
    """Return DumpLogSegments' output for the files. A blank at the end of a line, after which 3.9.1
    would print a producer's last batch, is removed."""
    arguments = ["--files", ",".join(map(str, files)), *options]
    done = run_tool(version, MAIN_CLASSES[version], arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"(lastTimestamp: \d+) $", r"\1", done.stdout, flags=re.MULTILINE)


def stopped_directory(kafka: KafkaServer) -> Path:
    """Stop the node with SIGTERM; its directory stays until the with statement ends."""
    kafka.shut_down()
    return kafka.log_dir
