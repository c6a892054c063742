"""Compressed batches on Apache Kafka and on klog: equal responses, and each reads the other's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog.errors import ErrorCode
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.compression import Codec
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.golden.codec_errors import (
    STRICTER,
    TOPIC,
    error_codes_of,
    golden_error_codes,
    kafkas_error_codes,
)
from tests.support.golden.java_records import run_java
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, create_topic, fetch, first_partition, produce
from tests.support.records.codec_cases import cases
from tests.support.records.record_sets import iterate

pytestmark = pytest.mark.peers

NOT_READ = frozenset(STRICTER) | {
    "v2 lz4: all, then another record's stream",
    "v2 lz4: large, all, then another record's stream",
}
"""Batches that klog refuses to store and to read, and whole lz4 frames behind all records. Kafka's
clients ignore those frames. klog's Produce drops them; where Kafka has stored such a batch, klog's
readers take all frames for one stream and refuse it."""


@pytest.mark.parametrize("release", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_the_golden_answers_are_kafkas_and_klog_reads_what_kafka_stores(release: str) -> None:
    """tests/golden holds the other half: klog's responses equal the golden ones."""
    stored: list[bytes] = []
    answers = kafkas_error_codes(release, lambda client: stored.extend(stored_batches(client)))
    kafkas = golden_error_codes()
    assert answers == {name: kafkas[name] for name in answers}
    # Kafka may drop messages of the old formats.
    accepted = [case for case in cases() if answers.get(case.name) == 0]
    assert len(stored) == len(accepted)
    for case, data in zip(accepted, stored, strict=True):
        if case.magic == 2 and case.name not in NOT_READ:
            assert [record.value for record in iterate(data)] == list(case.values), case.name


def test_java_reads_each_compressed_batch_that_klog_stores(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as broker, broker.client() as client:
        answers = error_codes_of(client)
        stored = list(stored_batches(client))
        assert broker.broker.services.requests.bugs.total == 0
    accepted = [case for case in cases() if not answers[case.name].error_code]
    assert len(stored) == len(accepted) > 200
    lines = run_java([f"read true {data.hex()}" for data in stored])
    for case, line in zip(accepted, lines, strict=True):
        assert values_in(line) == list(case.values), (case.name, line[:200])


def stored_batches(client: RawClient) -> Iterator[bytes]:
    """The bytes of each batch of the topic."""
    offset = 0
    while data := bytes(first_partition(fetch(client, TOPIC, offset=offset)).records or b""):
        for each in split_batches(data, allow_partial=True):
            yield each.to_bytes()
            offset = each.last_offset + 1


def values_in(line: str) -> list[bytes]:
    """The values of the records that JavaRecords.java prints."""
    kind, *records = line.split(" ")
    assert kind == "records", line[:200]
    return [bytes.fromhex(record.split(",")[4][1:]) for record in records]


@pytest.mark.parametrize("release", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_fetch_gets_zstd_in_the_versions_in_which_kafka_sends_it(
    release: str, tmp_path: Path
) -> None:
    """Only 3.9.1 has versions 0 to 3, and refuses a topic whose compression.type is zstd before
    version 10. klog sends such a topic from version 4 on, as 4.3.1 does."""
    with KafkaServer(release) as server, BrokerThread(tmp_path / "data") as broker:
        host, port = server.bootstrap_servers.split(":")
        with RawClient((host, int(port))) as kafka, broker.client() as klog:
            kafkas = zstd_fetches(kafka, 0 if release == OLDEST_KAFKA else 4)
            klogs = zstd_fetches(klog, 0)
    refused = (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0)
    for (topic, version), found in klogs.items():
        assert found == (refused if version < 4 else (0, 1)), (topic, version)
        differs = release == OLDEST_KAFKA and topic == "of-zstd" and 4 <= version < 10
        if (topic, version) in kafkas:
            assert kafkas[topic, version] == (refused if differs else found), (topic, version)


def zstd_fetches(client: RawClient, oldest: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Error code and number of records, by topic and version of Fetch."""
    found = {}
    for topic, configs in (("sent-as-zstd", {}), ("of-zstd", {"compression_type": "zstd"})):
        create_topic(client, topic, **configs)
        sent = batch(b"a" * 300, codec=Codec.ZSTD)
        eventually(lambda topic=topic, sent=sent: produce(client, topic, sent).error_code == 0)
        for version in range(oldest, 13):
            data = first_partition(fetch(client, topic, version=version))
            records = list(iterate(bytes(data.records or b"")))
            found[topic, version] = (int(data.error_code), len(records))
    return found
