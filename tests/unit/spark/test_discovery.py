"""Partitions and their ends, found with made-up brokers."""

from collections.abc import Iterable, Mapping
from typing import Any, cast
from uuid import UUID

import pytest

from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.cluster.retry_warnings import Retries
from pyspark_klog.client.consumer.offsets import OffsetAt
from pyspark_klog.client.errors import LeaderUnknown, TimedOut, TopicMissing
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning import discovery as discovery_module
from pyspark_klog.spark.planning.bound_resolution import resolve_end, resolve_start
from pyspark_klog.spark.planning.discovery import Discovery

_P0, _P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _topic(name: str, partitions: int, **more: Any) -> TopicInfo:
    rows = {number: PartitionInfo(1) for number in range(partitions)}
    return TopicInfo(name, partitions=rows, **more)


def _absent(name: str) -> TopicInfo:
    return TopicInfo(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class _Cluster:
    """Stands for the client: each refresh shows the next of some views, and then the last."""

    def __init__(self, *views: list[TopicInfo]) -> None:
        self.views = list(views)
        self.view = ClusterView()
        self.asked: list[list[str] | None] = []
        self.waits: list[int] = []
        self.forgotten: list[str] = []
        self.doubts = 0
        self.retries = Retries(self.now_ms)

    def now_ms(self) -> int:
        return sum(self.waits)

    def refresh(self, topics: Iterable[str] | None) -> ClusterView:
        self.asked.append(None if topics is None else sorted(topics))
        infos = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        self.view = ClusterView(topics={info.name: info for info in infos})
        return self.view

    def sleep_ms(self, wait_ms: int) -> None:
        self.waits.append(wait_ms)

    def forget_topic(self, topic: str) -> None:
        self.forgotten.append(topic)

    def mark_doubtful(self) -> None:
        self.doubts += 1


def _discovery(cluster: _Cluster, **given: str) -> Discovery:
    return Discovery(cast(Any, cluster), _options(**given))


def _options(**given: str) -> Any:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return read_options({"kafka.bootstrap.servers": "nowhere:1", **named}).for_batch()


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    """Responses of ListOffsets, in turn; the last one is repeated."""
    answers: list[dict[TopicPartition, int]] = []

    def list_offsets(
        _client: object, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAt]:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return {p: OffsetAt(found[p]) for p in times}

    monkeypatch.setattr(discovery_module, "list_offsets", list_offsets)
    return answers


# --- brokers that are away -----------------------------------------------------------------------
def test_an_outage_is_waited_for_as_often_as_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Cluster([_topic("t", 1)])
    asked = 0

    def list_offsets(*_: object, **__: object) -> dict[TopicPartition, OffsetAt]:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise TimedOut("nobody answered")
        return {_P0: OffsetAt(7)}

    monkeypatch.setattr(discovery_module, "list_offsets", list_offsets)
    discovery = _discovery(cluster, subscribe="t")
    assert discovery.latest([_P0], {}) == {_P0: 7}
    assert cluster.waits == [1_000, 1_000]
    asked = 0
    with pytest.raises(TimedOut, match="nobody answered"):
        _discovery(cluster, subscribe="t", fetchOffset__numRetries="2").earliest([_P0])
    assert asked == 2


def test_brokers_that_do_not_answer_for_topics_are_asked_again() -> None:
    cluster = _Cluster([_topic("t", 1)])
    answers = iter([TimedOut("nobody answered"), None])
    refresh = cluster.refresh

    def flaky(topics: Iterable[str] | None) -> ClusterView:
        error = next(answers)
        if error is not None:
            raise error
        return refresh(topics)

    cluster.refresh = flaky  # type: ignore[method-assign]
    assert _discovery(cluster, subscribe="t").partitions() == {_P0}
    assert cluster.waits == [1_000]


# --- partitions ----------------------------------------------------------------------------------
def test_a_pattern_is_asked_of_all_topics_and_leaves_internal_ones_out() -> None:
    cluster = _Cluster(
        [
            _topic("orders-1", 2),
            _topic("orders", 1),
            _topic("other", 1),
            _topic("orders-internal", 1, is_internal=True),
            _topic("__consumer_offsets", 1),
            _topic("__transaction_state", 1),
        ]
    )
    found = _discovery(cluster, subscribePattern="ders-|__.*").partitions()
    assert found == {TopicPartition("orders-1", 0), TopicPartition("orders-1", 1)}
    assert cluster.asked == [None]


def test_a_pattern_may_have_no_topic_yet() -> None:
    discovery = _discovery(_Cluster([_topic("other", 1)]), subscribePattern="orders")
    assert discovery.partitions() == discovery.existing_partitions() == frozenset()


@pytest.mark.parity("source option: fetchOffset.numRetries")
def test_an_absent_topic_is_asked_for_so_many_times() -> None:
    cluster = _Cluster([_absent("t")])
    options = {"fetchOffset__numRetries": "4", "fetchOffset__retryIntervalMs": "70"}
    with pytest.raises(TopicMissing, match=r"^topic t does not exist; create it.*4 times"):
        _discovery(cluster, subscribe="t", **options).partitions()
    assert cluster.asked == [["t"]] * 4
    assert cluster.waits == [70] * 3
    cluster = _Cluster([_absent("t")], [_topic("t", 1)])
    assert _discovery(cluster, subscribe="t", **options).partitions() == {_P0}


def test_assigned_partitions_that_the_metadata_lacks_are_waited_for_while_it_has_an_error() -> None:
    incomplete = _topic("t", 1, error=ErrorCode.LEADER_NOT_AVAILABLE)
    found = _discovery(_Cluster([incomplete], [_topic("t", 2)]), assign='{"t":[1]}').partitions()
    assert found == {_P1}
    discovery = _discovery(_Cluster([incomplete]), assign='{"t":[1]}')
    for find in (discovery.partitions, discovery.existing_partitions):
        with pytest.raises(LeaderUnknown, match="topic t lacks partitions: LEADER_NOT_AVAILABLE"):
            find()


@pytest.mark.parity("source behaviour: assign of an absent partition")
def test_assigned_partitions_must_exist_at_the_start() -> None:
    discovery = _discovery(_Cluster([_topic("t", 1)]), assign='{"t":[0,1,5]}')
    with pytest.raises(TopicMissing, match="assign names partitions that do not exist: t-1, t-5"):
        discovery.partitions()
    assert discovery.existing_partitions() == {_P0}


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"subscribe": "t"}, None),
        ({"assign": '{"t":[0]}'}, None),
        ({"subscribe": "t"}, [_P0]),
        ({"subscribePattern": "t"}, [_P0]),
    ],
)
def test_a_topic_is_not_believed_to_be_gone_at_once(
    given: dict[str, str], known: list[TopicPartition] | None
) -> None:
    """A broker that lags behind does not know the topic for a moment: no records are lost."""
    options = {**given, "fetchOffset__retryIntervalMs": "70"}
    absent = [] if "subscribePattern" in given else [_absent("t")]
    cluster = _Cluster(absent, [_topic("t", 1)])
    assert _discovery(cluster, **options).existing_partitions(known) == {_P0}
    assert cluster.waits == [70]
    cluster = _Cluster(absent)
    assert _discovery(cluster, **options).existing_partitions(known) == frozenset()
    assert cluster.waits == [70, 70], "after the attempts it is believed"
    assert _discovery(cluster, **options).existing_partitions([]) == frozenset()
    assert cluster.waits == [70, 70], "nothing was there before"


def test_a_topic_that_may_not_be_seen_is_not_tried_again() -> None:
    cluster = _Cluster([TopicInfo("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(BrokerError, match="topic t"):
        _discovery(cluster, subscribe="t").partitions()
    assert cluster.waits == []


# --- offsets -------------------------------------------------------------------------------------
@pytest.mark.parity("source behaviour: latest below the known one")
def test_an_end_below_the_known_one_is_asked_for_again(
    offsets: list[dict[TopicPartition, int]],
) -> None:
    cluster = _Cluster([])
    discovery = _discovery(cluster, subscribe="t", fetchOffset__retryIntervalMs="30")
    offsets += [{_P0: 3, _P1: 9}, {_P0: 6, _P1: 9}]
    assert discovery.latest([_P0, _P1], {_P0: 5}) == {_P0: 6, _P1: 9}
    assert cluster.waits == [30]
    assert (cluster.forgotten, cluster.doubts) == (["t"], 1), "another broker is asked who leads"
    offsets[:] = [{_P0: 3}]
    assert discovery.latest([_P0], {_P0: 5}) == {_P0: 3}, "after the attempts it is believed"
    assert cluster.waits == [30, 30, 30]


def test_times_without_a_match_are_left_out(offsets: list[dict[TopicPartition, int]]) -> None:
    offsets.append({_P0: 4, _P1: -1})
    assert _discovery(_Cluster([]), subscribe="t").at_times({_P0: 7, _P1: 7}) == {_P0: 4}
    assert _discovery(_Cluster([]), subscribe="t").at_times({}) == {}


def test_minus_2_is_the_earliest_offset_of_a_partition_and_minus_1_the_latest(
    offsets: list[dict[TopicPartition, int]],
) -> None:
    both = frozenset({_P0, _P1})
    start, end = '{"t":{"0":3,"1":-2}}', '{"t":{"0":-1,"1":5}}'
    options = _options(subscribe="t", startingOffsets=start, endingOffsets=end)
    discovery = Discovery(cast(Any, _Cluster([])), options)
    offsets += [{_P0: 1, _P1: 2}]
    assert resolve_start(discovery, options, both) == {_P0: 3, _P1: 2}
    offsets[:] = [{_P0: 9, _P1: 8}]
    assert resolve_end(discovery, options, both) == {_P0: 9, _P1: 5}


@pytest.mark.parity("source behaviour: no timestamp match")
def test_bounds_by_time(offsets: list[dict[TopicPartition, int]]) -> None:
    both = frozenset({_P0, _P1})
    options = _options(subscribe="t", startingTimestamp="7", endingTimestamp="9")
    discovery = Discovery(cast(Any, _Cluster([])), options)
    offsets += [{_P0: 4, _P1: 2}]
    assert resolve_start(discovery, options, both) == {_P0: 4, _P1: 2}
    offsets[:] = [{_P0: 4, _P1: -1}, {_P1: 30}]
    assert resolve_end(discovery, options, both) == {_P0: 4, _P1: 30}, "no match means latest"
    offsets[:] = [{_P0: 4, _P1: -1}]
    with pytest.raises(OffsetError) as caught:
        resolve_start(discovery, options, both)
    assert str(caught.value) == (
        "startingTimestamp finds no record at or after the timestamp in t-1 at 7; give an earlier "
        "timestamp, or set startingOffsetsByTimestampStrategy=latest to begin such partitions at "
        "their end"
    )
    options = _options(
        subscribe="t", startingTimestamp="7", startingOffsetsByTimestampStrategy="latest"
    )
    offsets[:] = [{_P0: 4, _P1: -1}, {_P1: 30}]
    assert resolve_start(discovery, options, both) == {_P0: 4, _P1: 30}


def test_timestamps_must_be_for_exactly_what_is_read(
    offsets: list[dict[TopicPartition, int]],
) -> None:
    options = _options(subscribe="t", startingOffsetsByTimestamp='{"t":{"0":7}}')
    discovery = Discovery(cast(Any, _Cluster([])), options)
    with pytest.raises(OffsetError, match=r'without t-1; .* as in \{"t": \{"0": 7, "1": 7\}\}'):
        resolve_start(discovery, options, frozenset({_P0, _P1}))


# --- topics that were deleted and made again -----------------------------------------------------
_OLD, _NEW = UUID(int=1), UUID(int=2)


def test_another_id_is_asked_for_again_before_it_is_believed() -> None:
    old, new = _topic("t", 1, topic_id=_OLD), _topic("t", 1, topic_id=_NEW)
    known = {"t": _OLD}
    cluster = _Cluster([new], [old])
    discovery = _discovery(cluster, subscribe="t")
    discovery.existing_partitions()
    assert discovery.recreated_topics(known) == {}
    assert cluster.waits == [1_000]
    cluster = _Cluster([new])
    discovery = _discovery(cluster, subscribe="t")
    discovery.existing_partitions()
    assert discovery.recreated_topics(known) == {"t": _NEW}
    assert cluster.waits == [1_000, 1_000]
    assert discovery.recreated_topics({"t": _NEW}) == {}
    assert len(cluster.asked) == 3, "what is as it was costs nothing"


def test_an_absent_topic_or_one_without_an_id_is_no_other_topic() -> None:
    for info in (_absent("t"), _topic("t", 1)):
        cluster = _Cluster([info])
        discovery = _discovery(cluster, subscribe="t")
        discovery.existing_partitions(())
        assert discovery.recreated_topics({"t": _OLD}) == {}
        assert discovery.topic_ids(["t"]) == {}


# --- why a partition is not read any more --------------------------------------------------------
_NOT_SEEN = TopicInfo("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_SKIP = "set option failOnDataLoss=false"


@pytest.mark.parametrize(
    ("info", "options", "text", "end"),
    [
        (
            _absent("t"),
            {"subscribe": "t"},
            "t-1 is gone: R, and topic t does not exist any more; check kafka.bootstrap.servers",
            f"to read on without the topic, {_SKIP}",
        ),
        (
            _topic("t", 1),
            {"subscribe": "t"},
            "t-1 is gone: R, and topic t has no such partition any more, so it was deleted and "
            "created again; give a stream a new checkpointLocation",
            "in the midst of the new topic",
        ),
        (
            _topic("t", 2),
            {"subscribe": "s"},
            "t-1 is not read any more: R, and option subscribe does not name it; name it in option",
            f"or, to leave it out from now on, {_SKIP} for one run",
        ),
        (
            _topic("t", 2),
            {"assign": '{"t":[0]}'},
            "t-1 is not read any more: R, and option assign does not name it; name it",
            f"{_SKIP} for one run",
        ),
        (
            _topic("t", 2),
            {"subscribePattern": "s.*"},
            "t-1 is not read any more: R, and option subscribePattern does not name it; name it",
            f"{_SKIP} for one run",
        ),
        (
            _NOT_SEEN,
            {"subscribePattern": "t.*"},
            "t-1 cannot be read any more: R, and this user may not describe topic t; let the user ",
            f"to read on without the topic, {_SKIP}",
        ),
        (
            _topic("t", 2),
            {"subscribe": "t"},
            "t-1 was not there a moment ago: R, and topic t may be another one now; start the",
            "which looks for the partition again",
        ),
    ],
)
def test_only_what_is_gone_is_called_gone(
    info: TopicInfo, options: dict[str, str], text: str, end: str
) -> None:
    discovery = _discovery(_Cluster([info]), **options)
    found = str(discovery.absence(_P1, "R"))
    assert found.startswith(text) and found.endswith(end)


_ELSEWHERE = TopicPartition("other", 0)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"subscribe": "s,u"}, "subscribe (s, u)"),
        ({"subscribePattern": "s.*"}, "subscribePattern (s.*)"),
        ({"assign": '{"t":[0,2]}'}, "assign (t-0, t-2)"),
    ],
)
def test_only_a_checkpoint_without_any_selected_partition_is_another_querys(
    options: dict[str, str], value: str
) -> None:
    discovery = _discovery(_Cluster([]), **options)
    found = discovery.other_checkpoint([_P1, _ELSEWHERE])
    assert found is not None and found.text == (
        f"the checkpoint has offsets of topic other, t, and option {value} selects none of them "
        "(is this another query's checkpointLocation?)"
    )
    selected = TopicPartition("t" if "assign" in options else "s", 0)
    assert discovery.other_checkpoint([selected, _P1]) is None
    assert discovery.other_checkpoint([]) is None
    many = discovery.other_checkpoint([TopicPartition(f"o{n}", 0) for n in range(5)])
    assert many is not None and "of topic o0, o1, o2 and 2 more, and" in many.text
