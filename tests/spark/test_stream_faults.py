"""A stream that copies a topic goes on while its connections to the broker fail."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog import testing
from tests.support.eventually import eventually
from tests.support.spark.topics import Topics


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    """A broker of this test alone: the sink's workers reuse their producers on the shared one."""
    with testing.Broker() as broker:
        yield broker


@pytest.fixture
def topics(broker: testing.Broker) -> Iterator[Topics]:
    made = Topics(broker.bootstrap_servers)
    yield made
    made.close()


@pytest.mark.usefixtures("spark")
def test_a_stream_copies_each_record_once_while_connections_fail(
    broker: testing.Broker, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(2), topics.create(2)
    for partition in (0, 1):
        topics.put_numbers(source, range(10 * partition, 10 * partition + 10), partition)
    faults = broker.faults
    used = [
        faults.disconnect("Metadata", before=True),
        faults.disconnect("ListOffsets", after=True),
        faults.disconnect("Fetch", after=True),
        faults.delay("Fetch", 100, times=2),
        faults.disconnect("InitProducerId", after=True),
        faults.disconnect("Produce", after=True),
    ]
    frame = topics.stream(subscribe=source, startingOffsets="earliest", kafka__client__id="reader")
    writer = frame.select("value").writeStream.format("klog")
    writer = writer.options(**topics.options(topic=target, checkpointLocation=tmp_path))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        assert [each.fired for each in used] == [1, 1, 1, 2, 1, 1]
        hole = faults.blackhole("reader")
        topics.put_numbers(source, range(20, 30))
        eventually(lambda: hole.fired > 0, 60, "a request that nobody answers")
        hole.end()
        query.processAllAvailable()
    finally:
        query.stop()
    assert topics.numbers(target) == list(range(30))
