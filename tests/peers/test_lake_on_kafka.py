"""klog lake copies from Apache Kafka: each committed record is in the table once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.lake_tables.errors import OtherTopic
from tests.support.lake import (
    KINDS,
    Lake,
    Transactions,
    committed_client,
    copier,
    copy_all,
    table_rows,
    topic_rows,
)
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

TOPIC = "lake"


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with KafkaServer(request.param) as server:
        yield server.bootstrap_servers


@pytest.mark.parametrize("kind", KINDS)
def test_committed_records_are_copied_once(servers: str, tmp_path: Path, kind: str) -> None:
    topic, lake = f"{TOPIC}-{kind}", Lake(tmp_path)
    with Admin(servers) as admin, committed_client(servers) as client:
        admin.create_topics([NewTopic(topic, num_partitions=2)])
        writing = Transactions(servers, topic)
        for _ in range(3):
            writing.run(4)
            copy_all(client, copier(client, topic, lake.table(kind, topic)))
        found = table_rows(lake.table(kind, topic))
        assert found == topic_rows(servers, topic)
        assert found.total() == 80
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, num_partitions=2)])
        with pytest.raises(OtherTopic):
            copy_all(client, copier(client, topic, lake.table(kind, topic)))
