"""klog's client on Apache Kafka 3.9 and 4.3: the same cases as on klog, and transactions."""

from collections.abc import Callable, Iterator
from functools import partial

import confluent_kafka
import pytest

from pyspark_klog.client.admin.groups import list_groups
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.arrow import ArrowDecoder
from pyspark_klog.records.compression import Codec
from tests.support.client.cases import (
    CASES,
    client_of,
    new_topic,
    records_come_back_as_they_were_written,
)
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    with KafkaServer(request.param) as server:
        yield server.bootstrap_servers


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(kafka: str, codec: Codec) -> None:
    records_come_back_as_they_were_written(kafka, codec)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_any_broker(kafka: str, case: Callable[[str], None]) -> None:
    case(kafka)


def _transactions(servers: str, topic: str) -> list[bytes]:
    """Committed and aborted transactions on one partition; gives the committed values."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(20)
    committed: list[bytes] = []
    for number in range(12):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, i) for i in range(5)]
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(20)
        if number % 3 == 1:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            committed += values
    return committed


@pytest.mark.parametrize("fetch_bytes", [200, 1_048_576])
def test_read_committed_leaves_out_what_was_aborted(kafka: str, fetch_bytes: int) -> None:
    topic = new_topic(kafka, 1)
    partition = TopicPartition(topic, 0)
    committed = _transactions(kafka, topic)
    with client_of(
        kafka, isolation_level="read_committed", max_partition_fetch_bytes=fetch_bytes
    ) as client:
        end = list_offsets(client, {partition: LATEST}, read_committed=True)[partition].offset
        assert end == 12 * 6

        def fail(lost: OffsetsLost) -> None:
            raise lost

        decoder = ArrowDecoder(topic=topic, partition=0, columns=["value"], end_offset=end)
        values: list[bytes] = []
        chunks = RangeFetcher(client, partition, 0, end, progress_timeout_ms=20_000, on_lost=fail)
        for chunk in chunks:
            for rows in decoder.decode(chunk.data, chunk.aborted):
                values += rows.column(0).to_pylist()
        rest = decoder.flush()
        values += rest.column(0).to_pylist() if rest is not None else []
    assert values == committed


def test_groups_of_both_protocols_are_described() -> None:
    """KIP-848: DescribeGroups calls a group of the newer protocol dead."""
    with KafkaServer(NEWEST_KAFKA) as server:
        servers = server.bootstrap_servers
        topic = new_topic(servers, 1)
        consumers = {}
        for protocol in ("classic", "consumer"):
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": f"of-{protocol}",
                    "group.protocol": protocol,
                }
            )
            consumer.subscribe([topic])
            consumers[protocol] = consumer

        def joined(protocol: str) -> bool:
            consumers[protocol].poll(0.2)
            return bool(consumers[protocol].assignment())

        with client_of(servers) as client:
            for protocol in consumers:
                eventually(partial(joined, protocol), 60, f"a member by the {protocol} protocol")
            listed = {group.group_id: group for group in list_groups(client)}
            for protocol, consumer in consumers.items():
                group = listed[f"of-{protocol}"]
                assert (group.state, group.member_count) == ("Stable", 1)
                assert group.protocol_type == "consumer"
                assert group.has_offsets
                consumer.close()
