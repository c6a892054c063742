"""The produce kernel's constants equal those of the protocol, the log and the packing of rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from klog_broker.log.producers import producer_state
from klog_broker.log.producers.producer_state import ProducerBatch
from klog_broker.log.segment.planned_append import ACKS_ALL_NEVER, AppendLimits, PlanFacts
from klog_broker.produce import kernel
from klog_broker.produce.tables import CONNECTION_ROW, SLOT_ROW, WORD_BYTES, PlanTables
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pyspark_klog.protocol.headers import RequestHeader, encode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey

VERSIONS = range(kernel.FIRST_VERSION, kernel.LAST_VERSION + 1)
NAME = "a-topic"


def reply_bytes(version: int, *partitions: int) -> int:
    """The size of a response with ``partitions[n]`` partitions of the n-th topic."""
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=NAME,
                topic_id=UUID(int=1),
                partition_responses=[
                    PartitionProduceResponse(index=index, error_code=0, base_offset=1)
                    for index in range(count)
                ],
            )
            for count in partitions
        ]
    )
    return len(encode_response(1, response, version))


def test_rows_have_the_kernels_sizes() -> None:
    assert SLOT_ROW.size == (kernel.SLOT_OUT + 1) * WORD_BYTES
    assert CONNECTION_ROW.size == kernel.CONNECTION_WORDS * WORD_BYTES
    assert kernel.WINDOW_BATCHES == producer_state.WINDOW_BATCHES
    # All but the time of appending, which a planned batch has none of.
    assert len(ProducerBatch._fields) - 1 == kernel.WINDOW_WORDS
    window = kernel.WINDOW_BATCHES * kernel.WINDOW_WORDS
    assert kernel.PRODUCER_WINDOW + window <= kernel.PRODUCER_WORDS
    assert max(kernel.SLOT_UNTIMED_LIMIT_MS, kernel.SLOT_FIRST_TIMESTAMP_MS) < kernel.SLOT_WORDS


def test_facts_lie_where_the_kernel_looks_for_them() -> None:
    seen: list[Any] = []

    def plan(_arena: Any, table: Any, *_others: Any) -> int:
        seen.append(table.tolist())
        return kernel.DONE

    tables = PlanTables(
        SimpleNamespace(**{**vars(kernel), "plan_produce": plan}), memoryview(bytearray(64)), 4321
    )
    limits = AppendLimits(
        size_bytes=108,
        segment_bytes=109,
        last_offset_limit=110,
        timestamp_limit_ms=111,
        longest_ms=112,
        untimed_limit_ms=113,
        bytes_since_index_entry=114,
        index_interval_bytes=115,
        index_rows=116,
        max_timestamp_ms=117,
        max_timestamp_offset=118,
    )
    facts = PlanFacts(101, 102, 103, 104, 105, 106, True, limits)
    tables.begin_plan([(7, 9), (20, 30)], [5, 6])
    tables.fill_slot(2, facts, acks_all=ACKS_ALL_NEVER)
    tables.join_slots(3, 2)
    tables.leave_slot(4)
    assert tables.plan() == kernel.DONE
    table = seen[0]
    assert table[kernel.HEAD_MAX_REQUEST_BYTES] == 4321
    assert table[kernel.HEAD_CONNECTIONS] == 2
    second = kernel.CONNECTIONS_AT + kernel.CONNECTION_WORDS
    assert table[second + kernel.CONNECTION_AT] == 20
    assert table[second + kernel.CONNECTION_END] == 30
    assert table[second + kernel.CONNECTION_PRINCIPAL] == 6
    assert table[kernel.HEAD_LEAVES_TRANSACTIONS] == 1
    slots = [kernel.SLOTS_AT + number * kernel.SLOT_WORDS for number in range(5)]
    expected = {
        kernel.SLOT_ROUND: table[kernel.HEAD_ROUND],
        kernel.SLOT_STATE: kernel.SLOT_READY,
        kernel.SLOT_NEXT_OFFSET: 101,
        kernel.SLOT_LEADER_EPOCH: 102,
        kernel.SLOT_LOG_START_OFFSET: 103,
        kernel.SLOT_MAX_MESSAGE_BYTES: 104,
        kernel.SLOT_EARLIEST_MS: 105,
        kernel.SLOT_LATEST_MS: 106,
        kernel.SLOT_KEY_REQUIRED: 1,
        kernel.SLOT_SIZE_BYTES: 108,
        kernel.SLOT_SEGMENT_BYTES: 109,
        kernel.SLOT_LAST_OFFSET_LIMIT: 110,
        kernel.SLOT_TIMESTAMP_LIMIT_MS: 111,
        kernel.SLOT_LONGEST_MS: 112,
        kernel.SLOT_UNTIMED_LIMIT_MS: 113,
        kernel.SLOT_SINCE_INDEX_ENTRY: 114,
        kernel.SLOT_INDEX_INTERVAL: 115,
        kernel.SLOT_INDEX_ROOM: 116,
        kernel.SLOT_MAX_TIMESTAMP_MS: 117,
        kernel.SLOT_MAX_TIMESTAMP_OFFSET: 118,
        kernel.SLOT_ACKS_ALL: 0,
        kernel.SLOT_BATCHES: 0,
        kernel.SLOT_BYTES: 0,
        kernel.SLOT_INDEX_ROWS: 0,
        kernel.SLOT_OUT: 0,
        kernel.SLOT_TARGET: slots[2],
        kernel.SLOT_FIRST_OFFSET: 101,
    }
    assert {word: table[slots[2] + word] for word in expected} == expected
    assert table[slots[3] + kernel.SLOT_TARGET] == slots[2]
    assert table[slots[3] + kernel.SLOT_STATE] == kernel.SLOT_READY
    assert table[slots[4] + kernel.SLOT_STATE] == kernel.SLOT_UNAVAILABLE


def test_the_kernel_knows_produce_as_the_codecs_do() -> None:
    assert kernel.PRODUCE == ApiKey.PRODUCE
    assert len(UUID(int=1).bytes) == kernel.TOPIC_ID_BYTES
    assert ProduceRequest.first_flexible_version == kernel.FIRST_FLEXIBLE
    assert ProduceRequest.max_version == kernel.LAST_VERSION
    since = {
        version
        for version in range(kernel.FIRST_VERSION + 1, kernel.FIRST_FLEXIBLE)
        if reply_bytes(version, 1) != reply_bytes(version - 1, 1)
    }
    assert since == {kernel.FIRST_WITH_LOG_START, kernel.FIRST_WITH_ERROR_MESSAGE}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_head_of_a_frame_is_as_long_as_the_kernel_thinks(version: int) -> None:
    partition = PartitionProduceData(index=0, records=b"")
    topic = TopicProduceData(name=NAME, topic_id=UUID(int=1), partition_data=[partition])
    request = ProduceRequest(acks=0x0123, timeout_ms=0, topic_data=[topic])
    data = encode_request(RequestHeader(ApiKey.PRODUCE, version, 1, ""), request)
    # The client id is followed by 2 bytes: tags and transactional id if flexible, else a null id.
    at = kernel.FRAME_HEAD_BYTES + 2
    assert data[at : at + 2] == b"\x01\x23"
    key = UUID(int=1).bytes if version >= kernel.FIRST_WITH_TOPIC_ID else NAME.encode()
    assert key in data


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_fit_the_requested_space(version: int) -> None:
    one = reply_bytes(version, 1)
    assert reply_bytes(version) <= kernel.RESPONSE_OTHER_BYTES
    assert reply_bytes(version, 2) - one <= kernel.RESPONSE_PARTITION_BYTES
    assert reply_bytes(version, 1, 0) - one - len(NAME) - 9 <= kernel.RESPONSE_TOPIC_BYTES
