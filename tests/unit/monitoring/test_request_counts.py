"""Counts for metrics: requests and their times, errors in responses, records by topic."""

from collections.abc import Sequence

from klog_broker.dispatch.response_errors import error_codes
from klog_broker.metrics.histogram import BOUNDS_MS, BUCKETS, SUM, Durations
from klog_broker.metrics.requests import (
    IN_THIS_TURN,
    NOT_SERVED,
    RequestTimes,
    api_and_version,
    head_of,
)
from klog_broker.metrics.topic_counts import CountsByTopic
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.end_txn import EndTxnResponse
from pyspark_klog.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pyspark_klog.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from pyspark_klog.protocol.apis.list_offsets import ListOffsetsResponse
from pyspark_klog.protocol.keys import ApiKey

MS = 1_000_000
FETCH, BEAT = head_of(1, 13), head_of(12, 4)


def times() -> RequestTimes:
    return RequestTimes(lambda api_key, version: version <= 17)


def shown(row: Sequence[int]) -> tuple[dict[float, int], int]:
    """Return (counts by bucket's bound, the sum in ns)."""
    bounds = (*BOUNDS_MS, float("inf"))
    return {bounds[i]: row[i] for i in range(BUCKETS) if row[i]}, row[SUM]


def test_a_head_is_api_key_and_version() -> None:
    assert api_and_version(FETCH) == (1, 13)
    assert int.from_bytes(b"\x00\x01\x00\x0d", "big") == FETCH


def test_all_that_a_turn_answers_has_the_turns_time() -> None:
    requests = times()
    requests.answered += [FETCH, BEAT, FETCH]
    requests.count_turn(5 * MS, 7 * MS)
    assert shown(requests.rows[FETCH]) == ({2.5: 2}, 4 * MS)
    assert shown(requests.rows[BEAT]) == ({2.5: 1}, 2 * MS)
    assert shown(requests.turns) == ({2.5: 1}, 2 * MS)


def test_one_request_alone_and_many_of_one_kind() -> None:
    requests = times()
    answered = requests.answered
    answered.append(FETCH)
    requests.count_turn(0, MS // 10)
    answered += [FETCH] * 3
    requests.count_turn(0, MS // 10 + 1)
    assert shown(requests.rows[FETCH]) == ({0.1: 1, 0.25: 3}, 4 * (MS // 10) + 3)
    requests.count_turn(0, 40_000 * MS)
    assert shown(requests.turns)[0] == {0.1: 1, 0.25: 1, float("inf"): 1}
    # Connections keep the list.
    assert requests.answered is answered and not answered


def test_a_request_that_waited_counts_from_the_turn_in_which_it_came() -> None:
    requests = times()
    requests.answered_later += [(FETCH, 1, 10 * MS), (head_of(0, 9), 70, IN_THIS_TURN)]
    requests.count_turn(500 * MS, 501 * MS)
    assert shown(requests.rows[FETCH]) == ({500: 1}, 491 * MS)
    assert shown(requests.rows[head_of(0, 9)]) == ({1: 70}, 70 * MS)
    requests.count_turn(502 * MS, 503 * MS)
    assert shown(requests.rows[FETCH])[0] == {500: 1}


def test_versions_that_are_not_served_are_counted_as_one() -> None:
    requests = times()
    for version in (18, 99, 0xFFFF):
        requests.answered += [head_of(18, version)]
        requests.count_turn(0, MS)
    requests.answered += [head_of(18, version) for version in range(20, 500)]
    requests.count_turn(0, MS)
    assert list(requests.rows) == [head_of(18, NOT_SERVED)]
    assert shown(requests.rows[head_of(18, NOT_SERVED)])[0] == {1: 483}


def test_durations() -> None:
    flushes = Durations()
    for took_ms in (0.05, 3, 60_000):
        flushes.add(round(took_ms * MS))
    assert shown(flushes.row) == ({0.1: 1, 5: 1, float("inf"): 1}, 60_003_050_000)


def test_error_codes_are_found_wherever_they_stand() -> None:
    partitions = [PartitionData(error_code=code) for code in (0, 6, 1)]
    fetched = FetchResponse(
        error_code=71, responses=[FetchableTopicResponse(partitions=partitions)]
    )
    assert list(error_codes(fetched)) == [71, 0, 6, 1]
    found = FindCoordinatorResponse(coordinators=[Coordinator(error_code=15)])
    assert list(error_codes(found)) == [0, 15]
    assert list(error_codes(EndTxnResponse(error_code=90))) == [90]
    assert list(error_codes(ListOffsetsResponse())) == []


def test_every_response_can_be_looked_through() -> None:
    for key in filter(registry.is_known, ApiKey):
        assert set(error_codes(registry.response_class(key)())) <= {0}


def test_topics_are_counted_as_long_as_they_have_logs() -> None:
    counts = CountsByTopic()
    first, second = counts.add_log("a"), counts.add_log("a")
    assert first is second
    first.messages_in += 3
    first.bytes_in += 30
    counts.add_log("b").bytes_out += 7
    counts.remove_log("a")
    assert set(counts.by_topic) == {"a", "b"}
    counts.remove_log("a")
    assert set(counts.by_topic) == {"b"}
    gone = counts.counts_of_deleted_topics()
    assert (gone.messages_in, gone.bytes_in, gone.bytes_out) == (3, 30, 0)
    # The counts of a new topic of the same name start at 0.
    assert counts.add_log("a").messages_in == 0
