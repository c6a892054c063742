"""The reading of many partitions without an end, with brokers on paper."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from pyspark_klog.client.consumer import continuous_reader as follower_module
from pyspark_klog.client.consumer.continuous_reader import ContinuousReader, OutOfRange
from pyspark_klog.client.consumer.offsets import EARLIEST, OffsetAt
from pyspark_klog.client.errors import ConnectionFailed, ReplyUnreadable, TimedOut, TopicMissing
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.support.client.scripted_leaders import (
    PARTITIONS,
    PaperClient,
    Reply,
    error,
    records,
    reply,
)


def follow(
    client: PaperClient,
    partitions: int = 3,
    on_out_of_range: Callable[[OutOfRange], int] = lambda lost: lost.earliest,
) -> ContinuousReader:
    positions = dict.fromkeys(PARTITIONS[:partitions], 10)
    return ContinuousReader(
        cast(Any, client), positions, trouble_timeout_ms=1_000, on_out_of_range=on_out_of_range
    )


class TestRecords:
    def test_each_leader_is_asked_for_its_partitions_and_at_once_again(self) -> None:
        client = PaperClient({1: [reply(records(0, 10, 2))], 2: [reply(records(2, 10, 5))]})
        found = follow(client).poll(100)
        assert [(each.partition, each.start, each.next_offset) for each in found] == [
            (PARTITIONS[0], 10, 12),
            (PARTITIONS[2], 10, 15),
        ]
        # The partition that brought something is last in the next request.
        assert [(broker, list(rows.items())) for broker, rows in client.asked] == [
            (1, [(0, 10), (1, 10)]),
            (2, [(2, 10)]),
            (1, [(1, 10), (0, 12)]),
            (2, [(2, 15)]),
        ]

    def test_the_end_of_a_log_is_waited_at(self) -> None:
        client = PaperClient({1: [reply()]})
        assert follow(client, 2).poll(700) == []
        assert client.now == 700
        assert client.requests[0].min_bytes == 1

    def test_an_old_broker_is_asked_by_names(self) -> None:
        client = PaperClient({1: []})
        client.newest_fetch = 11
        data = FetchableTopicResponse(topic="t", partitions=[records(0, 10, 1)])
        client.answers[1] = [FetchResponse(responses=[data])]
        assert len(follow(client, 1).poll(100)) == 1

    def test_readers_of_committed_records_get_the_aborted_transactions(self) -> None:
        client = PaperClient({1: [reply(records(0, 10, 1))]}, isolation_level="read_committed")
        assert follow(client, 1).poll(100)[0].aborted == []
        assert client.requests[0].isolation_level == 1

    def test_replies_that_make_no_sense(self) -> None:
        with pytest.raises(ReplyUnreadable, match="before this offset: the offset after them is 5"):
            follow(PaperClient({1: [reply(records(0, 4, 1))]}), 1).poll(100)
        cut = records(0, 10, 1)
        assert isinstance(cut.records, memoryview)
        cut.records = cut.records[:-1]
        with pytest.raises(ReplyUnreadable, match=r"hold no whole batch: raise max\.partition"):
            follow(PaperClient({1: [reply(cut)]}), 1).poll(100)


class TestTrouble:
    def test_the_reader_sleeps_while_a_partition_waits_for_a_busy_leader(self) -> None:
        client = PaperClient({1: [reply(error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))]}, ends={1, 2})
        reader = follow(client)
        # Partition 0 has failed. At 100 ms its pause is over, but its leader answers the request
        # for partition 1 only after 500 ms.
        reader.poll(499)
        assert client.poll_count <= 5
        reader.poll(510)
        assert client.asked[-1] == (1, {0: 10, 1: 10})

    @pytest.mark.parametrize(
        "trouble",
        [
            ConnectionFailed("lost"),
            reply(error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
            reply(error(0, ErrorCode.UNKNOWN_TOPIC_ID)),
        ],
    )
    def test_what_may_pass_is_tried_again_after_a_while(self, trouble: Reply) -> None:
        client = PaperClient({1: [trouble, reply(records(0, 10, 1))]})
        assert len(follow(client, 1).poll(5_000)) == 1
        assert client.now == 100

    def test_not_for_ever(self) -> None:
        client = PaperClient({1: [ConnectionFailed("lost") for _ in range(20)]})
        with pytest.raises(
            TimedOut, match="t-0 could not be read from offset 10 on within 1000 ms"
        ):
            follow(client, 1).poll(60_000)
        assert 1_000 <= client.now < 3_000

    def test_retries_go_on_for_ever_with_a_callback_for_trouble(self) -> None:
        client = PaperClient({1: [*(ConnectionFailed("lost") for _ in range(20)), reply()]})
        told: list[TimedOut] = []
        follower = ContinuousReader(
            cast(Any, client),
            dict.fromkeys(PARTITIONS[:1], 10),
            trouble_timeout_ms=1_000,
            on_out_of_range=lambda lost: lost.earliest,
            on_trouble=told.append,
        )
        assert follower.poll(60_000) == []
        assert client.now == 60_000
        assert 3 <= len(told) <= 20
        assert "t-0 could not be read from offset 10 on within 1000 ms: lost" in str(told[0])

    def test_whether_all_leaders_have_been_heard_of(self) -> None:
        empty = [PartitionData(partition_index=number, records=None) for number in range(3)]
        client = PaperClient(
            {
                1: [reply(*empty[:2]), reply(*empty[:2])],
                2: [ConnectionFailed("lost"), reply(empty[2])],
            }
        )
        follower = follow(client)
        assert not follower.has_responses_from_all_since(0)
        follower.poll(50)
        assert not follower.has_responses_from_all_since(0)
        follower.poll(200)
        assert follower.has_responses_from_all_since(0)
        assert not follower.has_responses_from_all_since(client.now + 1)

    def test_another_partition_goes_on_meanwhile(self) -> None:
        client = PaperClient(
            {1: [reply(error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), records(1, 10, 1))]}
        )
        (found,) = follow(client, 2).poll(5_000)
        assert found.partition == PARTITIONS[1]
        assert client.asked[-1] == (1, {1: 11})

    def test_what_stays_is_raised(self) -> None:
        client = PaperClient({1: [reply(error(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED))]})
        with pytest.raises(BrokerError, match="fetch from t-0"):
            follow(client, 1).poll(100)

    def test_an_unknown_partition(self) -> None:
        client = PaperClient({})
        follower = ContinuousReader(
            cast(Any, client),
            {TopicPartition("t", 7): 0},
            trouble_timeout_ms=60_000,
            on_out_of_range=lambda lost: lost.earliest,
        )
        with pytest.raises(TopicMissing, match="t-7 is gone"):
            follower.poll(60_000)

    def test_an_offset_out_of_range(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def listed(_client: object, asked: dict[TopicPartition, int], **_: object) -> object:
            return {each: OffsetAt(20 if at == EARLIEST else 30) for each, at in asked.items()}

        monkeypatch.setattr(follower_module, "list_offsets", listed)
        lost: list[OutOfRange] = []

        def go_on(found: OutOfRange) -> int:
            lost.append(found)
            return 25

        client = PaperClient(
            {1: [reply(error(0, ErrorCode.OFFSET_OUT_OF_RANGE)), reply(records(0, 25, 1))]}
        )
        (found,) = follow(client, 1, go_on).poll(100)
        assert (lost, found.start) == ([OutOfRange(PARTITIONS[0], 10, 20, 30)], 25)
