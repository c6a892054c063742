"""Compressed batches, whole, odd and damaged: answered as Kafka 3.9.1 and 4.3.1 answered them."""

from collections.abc import Iterator

import pytest

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.compression import Codec, inflate_produced
from tests.support.api.produce_frames import frame, produce_responses, values
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.golden.codec_errors import (
    OTHER_ERROR,
    STRICTER,
    check_error_code,
    golden_error_codes,
)
from tests.support.records.codec_cases import cases


@pytest.fixture(params=[True, False], ids=["kernel", "no kernel"])
def broker(request: pytest.FixtureRequest) -> MemoryBroker:
    return new_broker(with_kernel=request.param)


def test_compressed_batches_are_answered_as_by_kafka(broker: MemoryBroker) -> None:
    kafkas = golden_error_codes()
    stream = broker.connect()
    expected: list[bytes] = []
    for case in cases():
        version = 9 if case.magic == 2 else 2
        stream.inbox += frame(case.records, version=version)
        broker.turns()
        (answer,) = produce_responses(stream, version)
        check_error_code(case, int(answer.error_code), kafkas[case.name])
        if not answer.error_code:
            expected += case.values
    assert values(broker) == expected
    assert broker.broker.services.requests.bugs.total == 0
    # The broker compressed again the batches that librdkafka cannot read.
    for codec, payload in stored(broker):
        assert inflate_produced(codec, payload, magic=2, max_bytes=1 << 20).is_plain


def stored(broker: MemoryBroker) -> Iterator[tuple[Codec, bytes]]:
    """Codec and compressed records of each batch in the log."""
    log = broker.log("plain")
    for segment in log.segments:
        data = segment.log_file.pread(segment.size_bytes, 0)
        for batch in split_batches(data):
            yield batch.codec, batch.to_bytes()[at.RECORDS_AT :]


def test_the_exceptions_are_cases_that_kafka_was_asked() -> None:
    assert set(golden_error_codes()) == {case.name for case in cases()}
    assert OTHER_ERROR | set(STRICTER) <= set(golden_error_codes())
