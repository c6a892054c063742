"""klog's client as it speaks with brokers of older releases, down to 0.10.1.

The broker is klog's, which serves every version; the client sees only those of an older release.
"""

from collections.abc import Callable, Iterator
from typing import cast

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from pyspark_klog import testing
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.errors import UnsupportedByBroker
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.client.transport.api_versions import BrokerVersions
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.api_versions import ApiVersionsResponse
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.client.cases import (
    CASES,
    batch,
    client_of,
    groups_are_deleted,
    new_topic,
    read,
    topics_are_administered,
)

_RELEASES = [(0, 11), (1, 0), (2, 0), (2, 3), (2, 8), (3, 9)]

# Administration takes APIs that the older of these releases lack.
_NEWER = (topics_are_administered, groups_are_deleted)


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.Broker(num_partitions=1) as running:
        yield running


@pytest.fixture
def as_release(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, ...]], None]:
    """Let every connection believe that the broker is of a release."""
    real = BrokerVersions.of

    def cap(release: tuple[int, ...]) -> None:
        ranges = cast("dict[int, tuple[int, int]]", BROKER_API_VERSIONS[release])

        def capped(reply: ApiVersionsResponse) -> BrokerVersions:
            return BrokerVersions(
                {
                    key: (max(low, ranges[key][0]), min(high, ranges[key][1]))
                    for key, (low, high) in real(reply).ranges.items()
                    if key in ranges
                }
            )

        monkeypatch.setattr(BrokerVersions, "of", capped)

    return cap


@pytest.mark.parametrize("release", _RELEASES, ids=lambda r: ".".join(map(str, r)))
@pytest.mark.parametrize(
    "case", [each for each in CASES if each not in _NEWER], ids=lambda case: case.__name__
)
def test_any_release(
    broker: testing.Broker,
    as_release: Callable[[tuple[int, ...]], None],
    release: tuple[int, ...],
    case: Callable[[str], None],
) -> None:
    as_release(release)
    case(broker.bootstrap_servers)


def _write_and_read(client: BlockingClient, partition: TopicPartition, codec: Codec) -> None:
    producer = Producer(client)
    for number in range(10):
        builder = BatchBuilder(codec=codec)
        for key in (b"%d" % number, None):
            builder.append(key, b"v" * 50, 1_000 + number)
        producer.add(partition, builder.build(), builder.record_count)
    producer.flush()
    assert not producer.is_idempotent
    end = list_offsets(client, {partition: LATEST})[partition].offset
    found = read(client, partition, 3, end)
    assert [r.offset for r in found] == list(range(3, 20))
    assert [r.key for r in found[:3]] == [None, b"2", None]
    assert [r.timestamp_ms for r in found[:3]] == [1_001, 1_002, 1_002]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_the_oldest_release(
    broker: testing.Broker, as_release: Callable[[tuple[int, ...]], None], codec: Codec
) -> None:
    topic = new_topic(broker.bootstrap_servers, 1)
    as_release((0, 10, 1))
    with client_of(broker.bootstrap_servers) as client:
        _write_and_read(client, TopicPartition(topic, 0), codec)


def test_what_the_oldest_release_cannot_is_said(
    broker: testing.Broker, as_release: Callable[[tuple[int, ...]], None]
) -> None:
    partition = TopicPartition(new_topic(broker.bootstrap_servers, 1), 0)
    as_release((0, 10, 1))
    for settings, codec, words in (
        ({}, Codec.NONE, r"headers need a Kafka broker from 0\.11 on"),
        ({}, Codec.ZSTD, "versions 0 to 2 of PRODUCE; klog needs one of 7"),
        ({"enable_idempotence": "true"}, Codec.NONE, r"idempotence=true needs .* 0\.11 on"),
    ):
        with client_of(broker.bootstrap_servers, **settings) as client:
            producer = Producer(client)
            with pytest.raises(UnsupportedByBroker, match=words):
                producer.add(partition, *batch([b"k"], codec))
                producer.flush()
    with (
        client_of(broker.bootstrap_servers, isolation_level="read_committed") as client,
        pytest.raises(UnsupportedByBroker, match="FETCH"),
    ):
        read(client, partition, 0, 5)
