"""Make golden state records again: python -m tests.support.golden.state_records [FOLDER].

Kafka's generated classes write them, through JavaStateRecords.java; needs Java 17 and the jars of
Kafka 4.3.1 where tests/support/peers.py looks. The messages are Kafka's own JSON. The files are
committed, so tests need no Java. (consumer_offsets.json was made in the same way.)
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.peers import NEWEST_KAFKA, java, kafka_jars

GOLDEN_DIR = Path(__file__).parents[2] / "golden" / "state_records"
_PROGRAM = Path(__file__).parents[1] / "java" / "JavaStateRecords.java"
_TRANSACTION = "org.apache.kafka.coordinator.transaction.generated."
_GROUP = "org.apache.kafka.coordinator.group.generated."
_CLIENTS = "org.apache.kafka.common.message."


class Asked(NamedTuple):
    """One message: Kafka's class, the version, the fields as Kafka's JSON names them."""

    name: str
    java_class: str
    version: int
    fields: dict[str, Any]


def write_with_java(asked: Sequence[Asked]) -> list[bytes]:
    """The version in two bytes and the message, of each."""
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
        for each in asked:
            file.write(f"{each.java_class} {each.version} {json.dumps(each.fields)}\n")
        file.flush()
        result = subprocess.run(
            [java(), "-cp", f"{kafka_jars(NEWEST_KAFKA)}/*", str(_PROGRAM), file.name],
            check=True,
            capture_output=True,
            text=True,
        )
    return [bytes.fromhex(line) for line in result.stdout.splitlines()]


def transaction_log() -> list[Asked]:
    """A running transaction, one that has not begun, and all the tagged fields."""
    partitions = [
        {"topic": "orders", "partitionIds": [3, 0]},
        {"topic": "__consumer_offsets", "partitionIds": [17]},
    ]
    ongoing: dict[str, Any] = {
        "producerId": 4711,
        "producerEpoch": 12,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 1,
        "transactionPartitions": partitions,
        "transactionLastUpdateTimestampMs": 1_700_000_000_456,
        "transactionStartTimestampMs": 1_700_000_000_123,
    }
    empty = ongoing | {
        "transactionStatus": 0,
        "transactionPartitions": None,
        "transactionStartTimestampMs": -1,
    }
    tagged = ongoing | {
        "transactionStatus": 4,
        "transactionPartitions": [],
        "previousProducerId": 4710,
        "nextProducerId": 4712,
        "nextProducerEpoch": 1,
        "clientTransactionVersion": 2,
    }
    value, key = f"{_TRANSACTION}TransactionLogValue", f"{_TRANSACTION}TransactionLogKey"
    values = [
        Asked(f"{name}_{version}", value, version, fields)
        for version in (0, 1)
        for name, fields in (("ongoing", ongoing), ("empty", empty))
    ]
    return [
        Asked("key", key, 0, {"transactionalId": "kärnten-1"}),
        *values,
        Asked("tagged_1", value, 1, tagged),
    ]


def committed_offset() -> list[Asked]:
    """Records with the topic's id, as Kafka writes them unless the commit names an expiry."""
    fields: dict[str, Any] = {
        "offset": 123456789012,
        "leaderEpoch": 7,
        "metadata": "née",
        "commitTimestamp": 1_700_000_000_123,
        "topicId": "AAECAwQFBgcICQoLDA0ODw",
    }
    value = f"{_GROUP}OffsetCommitValue"
    return [
        Asked("with_id_4", value, 4, fields),
        Asked("long_metadata_4", value, 4, fields | {"metadata": "m" * 200}),
    ]


def consumer_protocol() -> list[Asked]:
    """Subscriptions that members of a consumer group send, and assignments that they get."""
    owned = [{"topic": "orders", "partitions": [2, 5]}]
    subscription: dict[str, Any] = {"topics": ["orders", "flights"], "userData": "AAEC"}
    since_1 = subscription | {"ownedPartitions": owned}
    since_2 = since_1 | {"generationId": 7}
    since_3 = since_2 | {"rackId": "rack-a"}
    return [
        *(
            Asked(f"subscription_{version}", f"{_CLIENTS}ConsumerProtocolSubscription", version, f)
            for version, f in enumerate((subscription, since_1, since_2, since_3))
        ),
        Asked(
            "assignment_3",
            f"{_CLIENTS}ConsumerProtocolAssignment",
            3,
            {"assignedPartitions": owned, "userData": None},
        ),
    ]


def main(folder: Path) -> None:
    for name, asked in (
        ("transaction_log", transaction_log()),
        ("consumer_protocol", consumer_protocol()),
        ("committed_offset", committed_offset()),
    ):
        made_by = f"Apache Kafka {NEWEST_KAFKA}'s generated classes (JavaStateRecords.java)"
        written = zip(asked, write_with_java(asked), strict=True)
        records = {each.name: data.hex() for each, data in written}
        text = json.dumps({"made_by": made_by, "records": records}, indent=1)
        (folder / f"{name}.json").write_text(text + "\n")
        print(f"{len(records)} records in {name}.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN_DIR)
