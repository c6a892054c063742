"""The reading of a range, from a made-up broker, with a clock that moves only during waits."""

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.cluster.read_replicas import ReadReplicas
from pyspark_klog.client.cluster.retry_warnings import Retries
from pyspark_klog.client.consumer import fetcher as fetcher_module
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import EARLIEST, OffsetAt
from pyspark_klog.client.errors import (
    ConnectionFailed,
    LeaderUnknown,
    NoBrokerAvailable,
    ReplyUnreadable,
    TimedOut,
)
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.records.builder import BatchBuilder
from tests.support.records.record_sets import iterate

_P = TopicPartition("t", 0)
_ID = UUID(int=5)
_MOST_BYTES = 4_194_304
"""max.partition.fetch.bytes, unless set."""

Answer = Callable[[int], PartitionData | KlogError | None]
"""The broker's response to a fetch at an offset; None: a response without any partition."""


class _PaperClient:
    """The part of BlockingClient that the fetcher uses. ``answers`` are used one by one."""

    def __init__(self, answers: list[Answer], **settings: str) -> None:
        self.read_replicas = ReadReplicas()
        self.brokers_asked: list[int] = []
        self.racks: list[str] = []
        self.settings = ClientSettings({k.replace("_", "."): v for k, v in settings.items()})
        self.answers = answers
        self.asked: list[int] = []
        self.asked_bytes: list[int] = []
        self.waits: list[int] = []
        self.now = 0
        self.retries = Retries(self.now_ms)
        self.throttle_time_ms = 0
        self.newest_fetch = 17
        self.versions = None
        self.on_forget: Callable[[], None] = lambda: None
        topic = TopicInfo("t", _ID, partitions={0: PartitionInfo(1, 3)})
        brokers = {number: Address("h", number) for number in (1, 2)}
        self.view = ClusterView(brokers, {"t": topic})

    def now_ms(self) -> int:
        return self.now

    def wait_ms(self, failures: int) -> int:
        return 100 * failures

    def sleep_ms(self, wait_ms: int) -> None:
        self.waits.append(wait_ms)
        self.now += wait_ms

    def forget_topic(self, _topic: str) -> None:
        self.on_forget()

    def mark_doubtful(self) -> None: ...

    def leader_of(self, partition: TopicPartition, _deadline_ms: int) -> PartitionInfo:
        topic = self.view.topics["t"]
        if partition.partition not in topic.partitions:
            raise LeaderUnknown("none")
        return topic.partitions[0]

    def link_to_broker(self, broker: int, _deadline_ms: int) -> "_PaperClient":
        self.brokers_asked.append(broker)
        return self

    @property
    def connection(self) -> "_PaperClient":
        return self

    def version(self, _api: int, _low: int, high: int | None) -> int:
        return min(self.newest_fetch, 17 if high is None else high)

    def send(self, _link: object, request: FetchRequest, *_: object, **__: object) -> int:
        [topic] = request.topics
        assert (topic.topic_id, topic.topic) == (_ID, "")
        [row] = topic.partitions
        assert row.current_leader_epoch == 3
        self.asked.append(row.fetch_offset)
        self.asked_bytes.append(row.partition_max_bytes)
        self.racks.append(request.rack_id)
        return row.fetch_offset

    def wait(self, offset: int, _deadline_ms: int) -> FetchResponse:
        answer = self.answers.pop(0)(offset)
        if isinstance(answer, KlogError):
            raise answer
        if answer is None:
            return FetchResponse(throttle_time_ms=self.throttle_time_ms)
        row = FetchableTopicResponse(topic_id=_ID, partitions=[answer])
        return FetchResponse(responses=[row], throttle_time_ms=self.throttle_time_ms)


def _records(base_offset: int, count: int, *, end: int = 1_000) -> Answer:
    builder = BatchBuilder(base_offset)
    for number in range(count):
        builder.append(None, b"%d" % (base_offset + number), 1)
    data = builder.build()
    return lambda _: PartitionData(records=memoryview(data), high_watermark=end)


def _nothing(*, end: int, stable: int = -1) -> Answer:
    return lambda _: PartitionData(records=b"", high_watermark=end, last_stable_offset=stable)


def _error(code: ErrorCode) -> Answer:
    return lambda _: PartitionData(error_code=code, records=None)


def _fail(lost: OffsetsLost) -> None:
    raise lost


def _read(
    client: _PaperClient,
    start: int,
    end: int,
    on_lost: Callable[[OffsetsLost], None] = _fail,
    timeout_ms: int = 10_000,
    **more: Any,
) -> list[int]:
    chunks = RangeFetcher(
        cast(Any, client), _P, start, end, progress_timeout_ms=timeout_ms, on_lost=on_lost, **more
    )
    return [record.offset for chunk in chunks for record in iterate(chunk.data)]


def test_the_next_request_is_under_way_while_a_chunk_is_used() -> None:
    client = _PaperClient([_records(0, 5), _records(5, 5)])
    chunks = RangeFetcher(cast(Any, client), _P, 0, 10, progress_timeout_ms=1_000, on_lost=_fail)
    iterator = iter(chunks)
    next(iterator)
    assert client.asked == [0, 5]
    next(iterator)
    assert client.asked == [0, 5]
    assert list(iterator) == []
    assert client.waits == []


def test_gaps_cost_no_waiting() -> None:
    client = _PaperClient([_records(3, 2), _records(90, 1), _nothing(end=200)])
    assert _read(client, 0, 100) == [3, 4, 90]
    assert client.asked == [0, 5, 91]
    assert client.waits == []


def test_a_range_without_any_record_left() -> None:
    assert _read(_PaperClient([_nothing(end=100)]), 50, 100) == []


def test_a_new_leader_that_lags_behind_is_waited_for() -> None:
    client = _PaperClient([_nothing(end=4), _nothing(end=4), _records(4, 6)])
    assert _read(client, 4, 10) == list(range(4, 10))
    assert client.waits == [100, 200]


def test_under_read_committed_the_last_stable_offset_decides() -> None:
    client = _PaperClient(
        [_nothing(end=50, stable=4), _nothing(end=50, stable=10)],
        isolation_level="read_committed",
    )
    assert _read(client, 4, 10) == []
    assert client.waits == [100]


def test_records_behind_an_open_transaction_are_not_said_to_be_lost() -> None:
    client = _PaperClient([_nothing(end=50, stable=4)] * 100, isolation_level="read_committed")
    with pytest.raises(OffsetsLost, match=r"0 to 4 are committed \(ends exclusive\)") as caught:
        _read(client, 4, 10, timeout_ms=1_000)
    assert caught.value.stable_end == 4
    client = _PaperClient([_nothing(end=4, stable=4)] * 100, isolation_level="read_committed")
    with pytest.raises(OffsetsLost, match=r"0 to 4 are there \(ends exclusive\)") as caught:
        _read(client, 4, 10, timeout_ms=1_000)
    assert caught.value.stable_end is None


def test_a_throttled_broker_says_nothing_of_gaps() -> None:
    client = _PaperClient([_nothing(end=50)] * 200)
    client.throttle_time_ms = 10
    with pytest.raises(TimedOut, match="the broker sent no more records"):
        _read(client, 4, 10, timeout_ms=1_000)


def _first_local(monkeypatch: pytest.MonkeyPatch, answers: list[int | KlogError]) -> None:
    def answer(_client: object, _link: object, partition: TopicPartition, epoch: int) -> int:
        assert (partition, epoch) == (_P, 3)
        found = answers.pop(0)
        if isinstance(found, KlogError):
            raise found
        return found

    monkeypatch.setattr(fetcher_module, "first_local_offset", answer)


def test_a_remote_tier_that_gives_nothing_yet_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka answers so if the tier is slow (DelayedRemoteFetch), or over its quota."""
    _first_local(monkeypatch, [40, 40])
    client = _PaperClient([_nothing(end=50), _nothing(end=50), _records(4, 6)])
    assert _read(client, 4, 10) == list(range(4, 10))
    assert client.waits == [100, 200]
    _first_local(monkeypatch, [10] * 200)
    with pytest.raises(TimedOut, match="the broker sent no more records"):
        _read(_PaperClient([_nothing(end=50)] * 200), 4, 10, timeout_ms=1_000)


def test_a_gap_in_what_the_leader_has_itself_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _first_local(monkeypatch, [4])
    client = _PaperClient([_nothing(end=50)])
    assert (_read(client, 4, 10), client.waits) == ([], [])


def test_only_the_leader_that_gave_nothing_confirms_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another replica may have more on its own disks."""
    moved = BrokerError(ErrorCode.FENCED_LEADER_EPOCH, "it leads again")
    _first_local(monkeypatch, [moved, 40])
    client = _PaperClient([_nothing(end=50), _nothing(end=50), _records(4, 6)])
    assert _read(client, 4, 10) == list(range(4, 10))
    _first_local(monkeypatch, [40])
    answers = [_prefer(2), _nothing(end=50), _nothing(end=50), _records(4, 6)]
    client = _PaperClient(answers, client_rack="b")
    assert _read(client, 4, 10) == list(range(4, 10))
    assert client.brokers_asked == [1, 2, 1, 1]


def test_a_reader_above_its_quota_waits() -> None:
    """Apache Kafka answers without any partition (FetchContext.getThrottledResponse)."""
    client = _PaperClient([_records(0, 5), lambda _: None, lambda _: None, _records(5, 5)])
    client.throttle_time_ms = 10
    assert _read(client, 0, 10) == list(range(10))
    assert client.asked == [0, 5, 5, 5]
    assert client.waits == [100, 200]
    client = _PaperClient([lambda _: None])
    with pytest.raises(ReplyUnreadable, match="has 0 partitions; expected exactly 1"):
        _read(client, 0, 10)


@pytest.mark.parametrize("wait_ms", [100, 2_000])
def test_a_log_that_stays_shorter_than_the_range_is_reported(
    monkeypatch: pytest.MonkeyPatch, wait_ms: int
) -> None:
    """After an election that lost records, reading must stop, however often it is tried."""

    def client() -> _PaperClient:
        def nothing(_: int) -> PartitionData | KlogError:
            if paper.now > 1_500:
                return TimedOut("no reply to FETCH in time")
            return PartitionData(records=b"", high_watermark=5, log_start_offset=2)

        paper = _PaperClient([_records(3, 2), *[nothing] * 100])
        monkeypatch.setattr(paper, "wait_ms", lambda _: wait_ms)
        return paper

    lost: list[OffsetsLost] = []
    assert _read(client(), 3, 10, lost.append, timeout_ms=1_000) == [3, 4]
    assert [(e.partition, e.start, e.available) for e in lost] == [(_P, 5, (2, 5))]
    words = r"offsets 5 to 10 of t-0 could not be read within 1000 ms, .*: 2 to 5 are there"
    with pytest.raises(OffsetsLost, match=words):
        _read(client(), 3, 10, timeout_ms=1_000)


def test_a_leader_that_stops_answering_says_nothing_of_lost_offsets() -> None:
    """The log was shorter once, long ago: its end may have risen since then."""

    def silence(_: int) -> KlogError:
        client.now += 9_900
        return TimedOut("no reply to FETCH in time")

    client = _PaperClient([_nothing(end=5), silence])
    with pytest.raises(TimedOut, match="no reply to FETCH"):
        _read(client, 7, 10, timeout_ms=10_000)


@pytest.mark.parametrize(
    "trouble",
    [
        _error(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        _error(ErrorCode.FENCED_LEADER_EPOCH),
        _error(ErrorCode.UNKNOWN_TOPIC_ID),
        _error(ErrorCode.KAFKA_STORAGE_ERROR),
        _error(ErrorCode.UNKNOWN_SERVER_ERROR),
        lambda _: ConnectionFailed("gone"),
    ],
)
def test_trouble_that_passes_is_followed(trouble: Answer) -> None:
    client = _PaperClient([_records(0, 5), trouble, trouble, _records(5, 5)])
    assert _read(client, 0, 10) == list(range(10))
    assert client.asked == [0, 5, 5, 5]
    assert client.waits == [100, 200]


def test_waits_start_again_after_each_chunk() -> None:
    trouble = _error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    client = _PaperClient([trouble, trouble, _records(0, 5), trouble, trouble, _records(5, 5)])
    assert _read(client, 0, 10) == list(range(10))
    assert client.waits == [100, 200, 100, 200]


def test_an_outage_while_reading_and_its_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    away = NoBrokerAvailable("no broker could be reached")
    client = _PaperClient([_records(0, 5), *[lambda _: away] * 4, _nothing(end=9), _records(5, 5)])
    assert _read(client, 0, 10) == list(range(10))
    assert caplog.messages == [
        "reading t-0 has failed and is tried again for up to 10 s: no broker could be reached",
        "reading t-0 works again after 1 s",
    ]


def test_missing_records_are_logged_before_the_time_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(OffsetsLost):
        _read(_PaperClient([_nothing(end=4)] * 100), 5, 10, timeout_ms=20_000)
    assert [text.partition(" and ")[0] for text in caplog.messages] == [
        "reading t-0 has failed for 6 s",
        "reading t-0 has failed for 10 s",
    ]
    assert caplog.messages[0].endswith(
        ": the next offset to read is 5, and 0 to 4 are there (ends exclusive)"
    )


def test_trouble_that_does_not_pass_ends_with_its_reason() -> None:
    client = _PaperClient([_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 100)
    with pytest.raises(TimedOut, match=r"offsets 0 to 10 of t-0 .* 2000 ms: NOT_LEADER") as caught:
        _read(client, 0, 10, timeout_ms=2_000)
    assert isinstance(caught.value.__cause__, BrokerError)


def test_a_missing_response_ends_with_the_range_that_was_to_be_read() -> None:
    client = _PaperClient([_records(0, 2), lambda _: TimedOut("no reply to FETCH in time")])
    words = "offsets 2 to 9 of t-0 could not be read within 1000 ms: no reply to FETCH in time"
    with pytest.raises(TimedOut, match=words):
        _read(client, 0, 9, timeout_ms=1_000)


def test_a_refusal_is_not_tried_again() -> None:
    client = _PaperClient([_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED: fetch from t-0"):
        _read(client, 0, 10)


def _ends(monkeypatch: pytest.MonkeyPatch, earliest: int, latest: int) -> None:
    def answer(_client: object, asked: dict[TopicPartition, int], **_: object) -> Any:
        return {p: OffsetAt(earliest if t == EARLIEST else latest) for p, t in asked.items()}

    monkeypatch.setattr(fetcher_module, "list_offsets", answer)


def test_deleted_records_at_the_beginning_are_reported_and_the_rest_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _ends(monkeypatch, 6, 20)
    lost: list[OffsetsLost] = []
    client = _PaperClient([_error(ErrorCode.OFFSET_OUT_OF_RANGE), _records(6, 4)])
    assert _read(client, 0, 10, lost.append) == [6, 7, 8, 9]
    assert [(e.partition, e.start, e.available) for e in lost] == [(_P, 0, (6, 20))]


def test_a_log_that_ends_before_the_range_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    _ends(monkeypatch, 0, 5)
    lost: list[OffsetsLost] = []
    client = _PaperClient([_error(ErrorCode.OFFSET_OUT_OF_RANGE)])
    assert _read(client, 8, 10, lost.append) == []
    assert "0 to 5 are there" in str(lost[0])
    with pytest.raises(OffsetsLost, match="offset 8 of t-0 is out of range"):
        _read(_PaperClient([_error(ErrorCode.OFFSET_OUT_OF_RANGE)]), 8, 10)


def test_a_log_that_changed_meanwhile_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _ends(monkeypatch, 0, 20)
    client = _PaperClient([_error(ErrorCode.OFFSET_OUT_OF_RANGE), _records(8, 2)])
    assert _read(client, 8, 10) == [8, 9]
    assert client.waits == [100]


def test_a_partition_that_stays_unknown_is_gone() -> None:
    client = _PaperClient([_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    absent = TopicInfo("t", _ID, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    client.view = ClusterView(topics={"t": absent})
    lost: list[OffsetsLost] = []
    assert _read(client, 3, 10, lost.append) == []
    assert "t-0 is gone: offsets 3 to 10 were to be read" in str(lost[0])


def test_a_batch_that_does_not_fit_a_reply_names_the_setting() -> None:
    whole = _records(0, 50)(0)
    assert isinstance(whole, PartitionData) and isinstance(whole.records, memoryview)
    data = whole.records[:-1]

    def cut_off(_: int) -> PartitionData:
        return PartitionData(records=data, high_watermark=50)

    # Brokers that cut the first batch off, too, may have been asked for too little.
    client = _PaperClient([cut_off, lambda _: whole])
    assert _read(client, 0, 50) == list(range(50))
    assert client.asked == [0, 0]
    assert client.asked_bytes[0] < client.asked_bytes[1] == _MOST_BYTES
    client = _PaperClient([cut_off, cut_off])
    with pytest.raises(ReplyUnreadable, match=r"raise max\.partition\.fetch\.bytes"):
        _read(client, 0, 50)


def test_little_beyond_the_end_of_a_range_is_asked_for() -> None:
    few = _PaperClient([_records(0, 8)])
    assert _read(few, 0, 8) == list(range(8))
    assert few.asked_bytes[0] < 70_000
    many = _PaperClient([_records(0, 50), _records(50, 50_000), _records(50_050, 50)])
    assert len(_read(many, 0, 50_100)) == 50_100
    # All that may be asked for, then by the bytes of a record so far: about 75 here.
    assert many.asked_bytes[0] == _MOST_BYTES
    assert 65_536 < many.asked_bytes[2] < 75_000
    large = _PaperClient([_records(0, 5), _records(5, 5)], max_partition_fetch_bytes="1000")
    _read(large, 0, 10)
    assert large.asked_bytes == [1000, 1000]


def test_an_answer_that_lies_before_the_question_ends_the_reading() -> None:
    with pytest.raises(ReplyUnreadable, match="the offset after them is 5"):
        _read(_PaperClient([_records(0, 5)]), 7, 10)


# --- replicas near the reader ---------------------------------------------------------------------
def _prefer(broker: int, *, end: int = 1_000) -> Answer:
    return lambda _: PartitionData(records=b"", high_watermark=end, preferred_read_replica=broker)


@pytest.mark.parity("beyond: 10 rack awareness")
def test_the_rack_is_sent_and_the_preferred_replica_followed() -> None:
    client = _PaperClient([_prefer(2), _records(0, 5), _records(5, 5)], client_rack="b")
    assert _read(client, 0, 10) == list(range(10))
    assert client.brokers_asked == [1, 2, 2]
    assert client.racks == ["b", "b", "b"]
    assert client.waits == []
    # The next range of this process begins at the replica.
    client.answers = [_records(10, 5)]
    assert _read(client, 10, 15) == list(range(10, 15))
    assert client.brokers_asked == [1, 2, 2, 2]


def test_without_a_rack_nothing_is_said_of_it() -> None:
    client = _PaperClient([_records(0, 5)])
    _read(client, 0, 5)
    assert client.racks == [""]


@pytest.mark.parity("beyond: 10 rack awareness")
def test_a_replica_is_read_until_the_metadatas_age_is_over() -> None:
    client = _PaperClient([_prefer(2), _records(0, 5)], client_rack="b", metadata_max_age_ms="1000")
    _read(client, 0, 5)
    client.now += 1_000
    client.answers = [_prefer(2), _records(5, 5)]
    _read(client, 5, 10)
    assert client.brokers_asked == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "trouble",
    [
        _error(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        _error(ErrorCode.OFFSET_OUT_OF_RANGE),
        lambda _: ConnectionFailed("gone"),
        _prefer(1),
    ],
)
def test_a_replica_that_fails_is_left_for_the_leader(trouble: Answer) -> None:
    client = _PaperClient([_prefer(2), trouble, _records(0, 5), _records(5, 5)], client_rack="b")
    assert _read(client, 0, 10) == list(range(10))
    assert client.brokers_asked == [1, 2, 1, 1]
    # The leader would name the same replica again: for a while it is not asked for one.
    assert client.racks == ["b", "b", "", ""]
    client.now += client.settings.number("metadata.max.age.ms")
    client.answers = [_prefer(2), _records(10, 5)]
    assert _read(client, 10, 15) == list(range(10, 15))
    assert client.brokers_asked[4:] == [1, 2]


def test_a_replica_that_brings_nothing_is_left_for_the_leader() -> None:
    """The replica may be cut off from the leader, and lacks the range for as long as that lasts."""
    nothing = [_nothing(end=0)] * 5
    client = _PaperClient([_prefer(2), *nothing, _records(0, 5)], client_rack="b")
    assert _read(client, 0, 5) == list(range(5))
    assert client.brokers_asked == [1, 2, 2, 2, 2, 2, 1]


def test_a_replica_that_the_metadata_lacks_is_not_followed() -> None:
    client = _PaperClient([_prefer(7), _records(0, 5)], client_rack="b")
    assert _read(client, 0, 5) == list(range(5))
    assert client.brokers_asked == [1, 1]


def test_bytes_are_counted() -> None:
    one = _records(0, 5)(0)
    assert isinstance(one, PartitionData) and isinstance(one.records, memoryview)
    client = _PaperClient([_records(0, 5), _records(5, 5)])
    fetcher = RangeFetcher(cast(Any, client), _P, 0, 10, progress_timeout_ms=1_000, on_lost=_fail)
    assert sum(len(chunk.data) for chunk in fetcher) == fetcher.fetched_bytes
    assert fetcher.fetched_bytes >= 2 * len(one.records)


# --- topics that were deleted and made again -----------------------------------------------------
_OTHER = UUID(int=6)


def _metadata_says(client: _PaperClient, topic_id: UUID) -> None:
    rows = {0: PartitionInfo(1, 3)}
    client.view = ClusterView(client.view.brokers, {"t": TopicInfo("t", topic_id, partitions=rows)})


def _read_old(client: _PaperClient, lost: list[OffsetsLost]) -> list[int]:
    """Return the records read of the topic with the id `_ID`, and of no other topic."""
    return _read(client, 3, 10, lost.append, topic_id=_ID)


def test_a_topic_that_was_made_again_is_not_read() -> None:
    client = _PaperClient([_records(3, 2)] + [_error(ErrorCode.UNKNOWN_TOPIC_ID)] * 6)
    lost: list[OffsetsLost] = []
    client.on_forget = lambda: _metadata_says(client, _OTHER)
    assert _read_old(client, lost) == [3, 4]
    assert [e.is_recreated for e in lost] == [True]
    assert f"its id was {_ID}, and is {_OTHER} now): offsets 5 to 10 of t-0" in str(lost[0])


def test_a_topic_that_was_made_again_is_known_by_its_metadata_where_fetches_go_by_name() -> None:
    client = _PaperClient([])
    client.newest_fetch = 12
    _metadata_says(client, _OTHER)
    lost: list[OffsetsLost] = []
    assert _read_old(client, lost) == []
    assert ([e.is_recreated for e in lost], client.asked) == ([True], [])


@pytest.mark.parametrize("seen", [_OTHER, UUID(int=0)])
def test_a_broker_that_knows_the_topic_is_believed_before_metadata(seen: UUID) -> None:
    """The metadata of this client may be older than the topic that is meant."""
    client = _PaperClient([_records(3, 7)])
    _metadata_says(client, seen)
    assert _read_old(client, []) == [*range(3, 10)]


def test_unavailable_brokers_do_not_make_a_partition_gone() -> None:
    """A partition is gone only if fresh metadata lack it again and again."""
    away: list[Answer] = [lambda _: ConnectionFailed("refused")] * 8
    client = _PaperClient([*away, _records(3, 7)])
    absent = ClusterView(
        client.view.brokers, {"t": TopicInfo("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    )
    client.leader_of = lambda *_: PartitionInfo(1, 3)  # type: ignore[method-assign]
    client.view = absent
    lost: list[OffsetsLost] = []
    assert _read_old(client, lost) == [*range(3, 10)]
    assert lost == []
