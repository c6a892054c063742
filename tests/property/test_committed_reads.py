"""Readers of committed records see each committed one once and no other, however they fetch."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.protocol.apis.fetch import PartitionData
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.control import ControlType, control_type_of
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.raw_requests import fetch_request

COMMITTED = 1
# Rolls every few batches; and an index entry for each.
TOPICS = ["plain", "small-segments", "dense-index"]


def shown(data: PartitionData, offset: int) -> tuple[list[bytes | None], int]:
    """The values from ``offset`` on that a client shows of an answer, and where it goes on."""
    coming = sorted(
        (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
    )
    void: set[int] = set()
    found: list[bytes | None] = []
    for batch in split_batches(bytes(data.records or b""), allow_partial=True):
        while coming and coming[0][0] <= batch.last_offset:
            void.add(coming.pop(0)[1])
        if batch.is_control:
            (record,) = batch.records()
            if control_type_of(record.key) is ControlType.ABORT:
                void.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in void):
            found += [each.value for each in batch.records() if each.offset >= offset]
        offset = batch.next_offset
    return found, offset


def read(broker: MemoryBroker, topic: str, max_bytes: int) -> list[bytes | None]:
    """Return all committed values, fetch by fetch."""
    values: list[bytes | None] = []
    offset = 0
    while True:
        request = fetch_request(
            topic, offset, partition_max_bytes=max_bytes, isolation_level=COMMITTED
        )
        (data,) = broker.call(request, 12).responses[0].partitions
        assert data.error_code == 0
        found, following = shown(data, offset)
        values += found
        if following == offset:
            assert offset >= data.last_stable_offset
            return values
        assert following <= data.last_stable_offset
        offset = following


def latest(broker: MemoryBroker, topic: str, isolation_level: int) -> int:
    row = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[row])],
    )
    (answer,) = broker.call(request, 5).topics[0].partitions
    return int(answer.offset)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 3), st.booleans()),
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(
    steps=STEPS, topic=st.sampled_from(TOPICS), max_bytes=st.sampled_from([1, 300, 2_000, 1 << 20])
)
def test_committed_records_are_read_once_and_in_order(
    steps: list[tuple[Any, ...]], topic: str, max_bytes: int
) -> None:
    broker = new_broker(with_kernel=False)
    log: PartitionLog = broker.log(topic)
    sequences = [0] * 4
    batches: list[tuple[int, int, list[bytes]]] = []  # first offset, producer, values
    ended: dict[int, list[tuple[int, bool]]] = {}  # by producer: markers
    for kind, producer_id, argument in steps:
        if kind == "end":
            marker_offset = append_end_marker(log, producer_id, commit=argument) - 1
            ended.setdefault(producer_id, []).append((marker_offset, argument))
            continue
        # Producer 0 writes without transactions.
        value = b"%d-%d" % (producer_id, sequences[producer_id])
        info = write(
            log,
            producer_id,
            sequences[producer_id],
            argument,
            is_transactional=producer_id > 0,
            value=value,
        )
        sequences[producer_id] += argument
        batches.append((info.first_offset, producer_id, [value] * argument))

    def outcome(first: int, producer_id: int) -> bool | None:
        if producer_id == 0:
            return True
        markers = ended.get(producer_id, [])
        return next((commit for offset, commit in markers if offset > first), None)

    open_since = [first for first, producer, _ in batches if outcome(first, producer) is None]
    stable = min(open_since, default=log.log_end_offset)
    expected = [
        value
        for first, producer, values in batches
        for value in values
        if first < stable and outcome(first, producer)
    ]
    assert read(broker, topic, max_bytes) == expected
    assert latest(broker, topic, COMMITTED) == stable
    assert latest(broker, topic, 0) == log.log_end_offset
    broker.close()
