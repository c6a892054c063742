"""A stream that copies a topic goes on while its connections to the broker fail."""

from pathlib import Path

from pyspark_klog import testing
from tests.support.eventually import eventually
from tests.support.spark.topics import Topics


def test_a_stream_copies_each_record_once_while_connections_fail(
    topics: Topics, spark_broker: testing.Broker, tmp_path: Path
) -> None:
    source, target = topics.create(2), topics.create(2)
    for partition in (0, 1):
        topics.put_numbers(source, range(10 * partition, 10 * partition + 10), partition)
    faults = spark_broker.faults
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
