"""The reading of many partitions without an end, with brokers on paper."""

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from pyspark_klog.client.addresses import Address
from pyspark_klog.client.consumer import follower as follower_module
from pyspark_klog.client.consumer.follower import Follower, OutOfRange
from pyspark_klog.client.consumer.offsets import EARLIEST, OffsetAt
from pyspark_klog.client.errors import (
    ConnectionFailed,
    LeaderUnknown,
    ReplyUnreadable,
    TimedOut,
    TopicMissing,
)
from pyspark_klog.client.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.settings import ClientSettings
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.records.builder import BatchBuilder

_ID = UUID(int=5)
_P = [TopicPartition("t", number) for number in range(3)]
Reply = FetchResponse | KlogError


class _Call:
    """A request that is answered when its broker's next reply is due."""

    def __init__(self, reply: Reply | None) -> None:
        self._reply = reply

    @property
    def is_done(self) -> bool:
        return self._reply is not None

    def result(self) -> FetchResponse:
        if isinstance(self._reply, KlogError):
            raise self._reply
        assert self._reply is not None
        return self._reply


class _PaperClient:
    """As much of BlockingClient as the follower uses; partition 2 is led by broker 2."""

    def __init__(self, answers: dict[int, list[Reply]], **settings: str) -> None:
        self.settings = ClientSettings({k.replace("_", "."): v for k, v in settings.items()})
        self.answers = answers
        self.asked: list[tuple[int, dict[int, int]]] = []
        self.requests: list[FetchRequest] = []
        self.now = 0
        self.newest_fetch = 17
        leaders = {0: PartitionInfo(1, 3), 1: PartitionInfo(1, 3), 2: PartitionInfo(2, 3)}
        brokers = {number: Address("h", number) for number in (1, 2)}
        self.view = ClusterView(brokers, {"t": TopicInfo("t", _ID, partitions=leaders)})
        self.links = self

    def now_ms(self) -> int:
        return self.now

    def wait_ms(self, failures: int) -> int:
        return 100 * failures

    def pause(self, wait_ms: int) -> None:
        self.now += wait_ms

    def poll(self, until_ms: int) -> None:
        self.now = max(self.now, until_ms)

    def forget(self, _topic: str) -> None: ...

    def doubt(self) -> None: ...

    def leader_of(self, partition: TopicPartition, _deadline_ms: int) -> PartitionInfo:
        info = self.view.topics["t"].partitions.get(partition.partition)
        if info is None:
            raise LeaderUnknown("none")
        return info

    def link_to_broker(self, broker: int, _deadline_ms: int) -> Any:
        client = self

        class Link:
            number = broker

            class connection:  # noqa: N801
                @staticmethod
                def version(_api: int, _low: int, high: int | None) -> int:
                    return min(client.newest_fetch, 17 if high is None else high)

        return Link

    def send(self, link: Any, request: FetchRequest, *_: object, **__: object) -> _Call:
        [topic] = request.topics
        by_id = self.newest_fetch > 12
        assert (topic.topic_id, topic.topic) == ((_ID, "") if by_id else (UUID(int=0), "t"))
        self.asked.append((link.number, {p.partition: p.fetch_offset for p in topic.partitions}))
        self.requests.append(request)
        replies = self.answers.get(link.number, [])
        return _Call(replies.pop(0) if replies else None)


def reply(*rows: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=_ID, partitions=list(rows))])


def records(partition: int, base_offset: int, count: int) -> PartitionData:
    builder = BatchBuilder(base_offset)
    for _ in range(count):
        builder.append(None, b"v", 1)
    return PartitionData(partition_index=partition, records=memoryview(builder.build()))


def error(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=code, records=None)


def follow(
    client: _PaperClient,
    partitions: int = 3,
    go_on: Callable[[OutOfRange], int] = lambda lost: lost.earliest,
) -> Follower:
    positions = dict.fromkeys(_P[:partitions], 10)
    return Follower(cast(Any, client), positions, trouble_timeout_ms=1_000, go_on=go_on)


class TestRecords:
    def test_each_leader_is_asked_for_its_partitions_and_at_once_again(self) -> None:
        client = _PaperClient({1: [reply(records(0, 10, 2))], 2: [reply(records(2, 10, 5))]})
        found = follow(client).poll(100)
        assert [(each.partition, each.start, each.next_offset) for each in found] == [
            (_P[0], 10, 12),
            (_P[2], 10, 15),
        ]
        # The partition that brought something is last in the next request.
        assert [(broker, list(rows.items())) for broker, rows in client.asked] == [
            (1, [(0, 10), (1, 10)]),
            (2, [(2, 10)]),
            (1, [(1, 10), (0, 12)]),
            (2, [(2, 15)]),
        ]

    def test_the_end_of_a_log_is_waited_at(self) -> None:
        client = _PaperClient({1: [reply()]})
        assert follow(client, 2).poll(700) == []
        assert client.now == 700
        assert client.requests[0].min_bytes == 1

    def test_an_old_broker_is_asked_by_names(self) -> None:
        client = _PaperClient({1: []})
        client.newest_fetch = 11
        data = FetchableTopicResponse(topic="t", partitions=[records(0, 10, 1)])
        client.answers[1] = [FetchResponse(responses=[data])]
        assert len(follow(client, 1).poll(100)) == 1

    def test_what_was_aborted_is_told_to_readers_of_committed_records(self) -> None:
        client = _PaperClient({1: [reply(records(0, 10, 1))]}, isolation_level="read_committed")
        assert follow(client, 1).poll(100)[0].aborted == []
        assert client.requests[0].isolation_level == 1

    def test_replies_that_make_no_sense(self) -> None:
        with pytest.raises(ReplyUnreadable, match="answered with batches that end before it, at 5"):
            follow(_PaperClient({1: [reply(records(0, 4, 1))]}), 1).poll(100)
        cut = records(0, 10, 1)
        assert isinstance(cut.records, memoryview)
        cut.records = cut.records[:-1]
        with pytest.raises(ReplyUnreadable, match=r"hold no whole batch: raise max\.partition"):
            follow(_PaperClient({1: [reply(cut)]}), 1).poll(100)


class TestTrouble:
    @pytest.mark.parametrize(
        "trouble",
        [
            ConnectionFailed("lost"),
            reply(error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
            reply(error(0, ErrorCode.UNKNOWN_TOPIC_ID)),
        ],
    )
    def test_what_may_pass_is_tried_again_after_a_while(self, trouble: Reply) -> None:
        client = _PaperClient({1: [trouble, reply(records(0, 10, 1))]})
        assert len(follow(client, 1).poll(5_000)) == 1
        assert client.now == 100

    def test_not_for_ever(self) -> None:
        client = _PaperClient({1: [ConnectionFailed("lost") for _ in range(20)]})
        with pytest.raises(
            TimedOut, match="t-0 could not be read from offset 10 on within 1000 ms"
        ):
            follow(client, 1).poll(60_000)
        assert 1_000 <= client.now < 3_000

    def test_another_partition_goes_on_meanwhile(self) -> None:
        client = _PaperClient(
            {1: [reply(error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), records(1, 10, 1))]}
        )
        (found,) = follow(client, 2).poll(5_000)
        assert found.partition == _P[1]
        assert client.asked[-1] == (1, {1: 11})

    def test_what_stays_is_raised(self) -> None:
        client = _PaperClient({1: [reply(error(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED))]})
        with pytest.raises(BrokerError, match="fetch from t-0"):
            follow(client, 1).poll(100)

    def test_a_partition_that_is_gone(self) -> None:
        client = _PaperClient({})
        follower = Follower(
            cast(Any, client),
            {TopicPartition("t", 7): 0},
            trouble_timeout_ms=60_000,
            go_on=lambda lost: lost.earliest,
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

        client = _PaperClient(
            {1: [reply(error(0, ErrorCode.OFFSET_OUT_OF_RANGE)), reply(records(0, 25, 1))]}
        )
        (found,) = follow(client, 1, go_on).poll(100)
        assert (lost, found.start) == ([OutOfRange(_P[0], 10, 20, 30)], 25)
