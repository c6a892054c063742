"""When a client asks for the metadata of its topics."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.client.cluster.metadata_refresh import MetadataRefresh
from pyspark_klog.client.transport.backoff import Backoff

MAX_AGE_MS = 10_000


def refresh() -> MetadataRefresh:
    """Waits are exact: 100, 200, 400 and so on up to 800 ms."""
    return MetadataRefresh(MAX_AGE_MS, Backoff(100, 800), lambda: 0.5)


def test_a_new_topic_is_asked_for_at_once_and_again_when_it_is_old() -> None:
    plan = refresh()
    assert plan.next_ms() is None and plan.begin(0) == []
    plan.follow("b", 5)
    plan.follow("a", 5)
    assert plan.begin(5) == ["a", "b"]
    plan.answered()
    assert plan.next_ms() == 5 + MAX_AGE_MS
    assert plan.begin(4 + MAX_AGE_MS) == []
    assert plan.begin(5 + MAX_AGE_MS) == ["a", "b"]


def test_one_request_at_a_time() -> None:
    plan = refresh()
    plan.follow("a", 0)
    assert plan.begin(0) == ["a"]
    plan.follow("b", 1)
    assert plan.next_ms() is None and plan.begin(1) == []
    plan.answered()
    assert plan.begin(2) == ["b"]


def test_a_doubt_during_a_request_counts_after_its_response() -> None:
    plan = refresh()
    plan.follow("a", 0)
    plan.begin(0)
    plan.doubt("a", 3)
    plan.answered()
    assert plan.begin(3) == ["a"]


def test_doubts_wait_longer_each_time_until_a_leader_answers() -> None:
    plan = refresh()
    plan.follow("a", 0)
    now_ms, waits_ms = 0, []
    for _ in range(6):
        plan.begin(now_ms)
        plan.answered()
        plan.doubt("a", now_ms)
        due_ms = plan.next_ms()
        assert due_ms is not None
        waits_ms.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits_ms == [0, 100, 200, 400, 800, 800]
    plan.begin(now_ms)
    plan.answered()
    plan.confirm("a")
    plan.doubt("a", now_ms)
    assert plan.next_ms() == now_ms


def test_a_failed_request_is_repeated_after_a_wait_with_all_that_is_due() -> None:
    plan = refresh()
    plan.follow("a", 0)
    now_ms, waits_ms = 0, []
    for _ in range(5):
        assert plan.begin(now_ms) == ["a"]
        plan.failed(now_ms)
        due_ms = plan.next_ms()
        assert due_ms is not None
        waits_ms.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits_ms == [100, 200, 400, 800, 800]
    plan.follow("b", now_ms)
    assert plan.begin(now_ms) == ["a", "b"]
    plan.answered()
    plan.doubt("a", now_ms)
    plan.begin(now_ms)
    plan.failed(now_ms)
    assert plan.next_ms() == now_ms + 100


def test_a_topic_that_is_not_followed_any_more() -> None:
    plan = refresh()
    plan.follow("a", 0)
    plan.begin(0)
    plan.unfollow("a")
    plan.failed(0)
    plan.doubt("a", 0)
    assert plan.topics == [] and plan.next_ms() is None


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["follow", "unfollow", "doubt", "confirm", "begin", "answered", "failed"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 500),
    ),
    max_size=40,
)


@given(_STEPS)
def test_every_followed_topic_is_asked_for_in_the_end(steps: list[tuple[str, str, int]]) -> None:
    plan, now_ms, under_way = refresh(), 0, False
    for name, topic, wait_ms in steps:
        now_ms += wait_ms
        if name in ("follow", "doubt"):
            getattr(plan, name)(topic, now_ms)
        elif name in ("unfollow", "confirm"):
            getattr(plan, name)(topic)
        elif name == "begin":
            under_way = bool(plan.begin(now_ms)) or under_way
        elif under_way and name == "answered":
            plan.answered()
            under_way = False
        elif under_way:
            plan.failed(now_ms)
            under_way = False
    if under_way:
        plan.answered()
    asked: set[str] = set()
    end_ms = now_ms + MAX_AGE_MS + 1_000
    while (due_ms := plan.next_ms()) is not None and due_ms <= end_ms:
        now_ms = max(now_ms, due_ms)
        asked.update(plan.begin(now_ms))
        plan.answered()
    assert asked == set(plan.topics)
