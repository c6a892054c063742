"""The records of a producer on their way into batches."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_klog.client.producer.accumulator import Accumulator, RecordList
from pyspark_klog.ids import TopicPartition

BATCH_BYTES, LINGER_MS = 100, 10
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def accumulator() -> Accumulator[int]:
    return Accumulator(batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)


def numbers(lists: list[RecordList[int]]) -> list[list[int]]:
    return [each.records for each in lists]


def test_records_wait_for_linger_ms() -> None:
    waiting = accumulator()
    assert (waiting.next_ms(), waiting.oldest_ms()) == (None, None)
    assert not waiting.append(P0, 1, 10, 5)
    assert not waiting.append(P0, 2, 10, 9)
    assert (waiting.next_ms(), waiting.oldest_ms(), waiting.size_bytes) == (15, 5, 20)
    assert waiting.take_ready(14) == []
    assert numbers(waiting.take_ready(15)) == [[1, 2]]
    assert (waiting.record_count, waiting.size_bytes, waiting.next_ms()) == (0, 0, None)


def test_a_complete_list_is_ready_at_once() -> None:
    waiting = accumulator()
    assert not waiting.append(P0, 1, 60, 0)
    assert waiting.append(P0, 2, 60, 0)
    assert numbers(waiting.take_ready(0)) == [[1]]
    assert waiting.append(P0, 3, 40, 0)  # exactly full
    assert numbers(waiting.take_ready(0)) == [[2, 3]]


def test_a_large_record_is_a_list_of_its_own() -> None:
    waiting = accumulator()
    waiting.append(P0, 1, 10, 0)
    assert waiting.append(P0, 2, 500, 0)
    waiting.append(P0, 3, 10, 0)
    assert numbers(waiting.take_ready(LINGER_MS)) == [[1], [2], [3]]


def test_a_flush_takes_everything() -> None:
    waiting = accumulator()
    waiting.append(P0, 1, 10, 0)
    waiting.append(P1, 2, 10, 0)
    assert numbers(waiting.take_ready(0, all_at_once=True)) == [[1], [2]]


def test_a_list_of_a_busy_partition_goes_on_collecting() -> None:
    waiting = accumulator()
    waiting.append(P0, 1, 10, 0)
    waiting.append(P1, 2, 10, 0)
    assert numbers(waiting.take_ready(50, may_take=lambda p: p == P1)) == [[2]]
    waiting.append(P0, 3, 10, 50)
    assert numbers(waiting.take_ready(50, may_take=lambda _: False, all_at_once=True)) == []
    waiting.append(P0, 4, 90, 50)  # has no room in the list, which is complete with that
    assert numbers(waiting.take_ready(50, may_take=lambda _: False)) == [[1, 3]]


def test_dropped_lists_are_the_first_ones_of_their_partition() -> None:
    waiting = accumulator()
    waiting.append(P0, 1, 90, 0)
    waiting.append(P0, 2, 90, 7)
    waiting.append(P0, 3, 90, 3)  # a clock that was set back does not change the order
    waiting.append(P1, 4, 90, 9)
    assert numbers(waiting.drop(lambda each: each.created_ms < 5)) == [[1]]
    assert (waiting.record_count, waiting.waiting()) == (3, [P0, P1])
    assert numbers(waiting.drop()) == [[2], [3], [4]]
    assert (waiting.record_count, waiting.size_bytes, waiting.waiting()) == (0, 0, [])


_APPENDS = st.lists(
    st.tuples(st.sampled_from([P0, P1]), st.integers(1, 130), st.integers(0, 15), st.booleans()),
    max_size=60,
)


@given(_APPENDS)
def test_every_record_leaves_once_in_order_and_in_time(
    appends: list[tuple[TopicPartition, int, int, bool]],
) -> None:
    waiting = accumulator()
    now_ms = 0
    given_to: dict[TopicPartition, list[int]] = {P0: [], P1: []}
    taken: dict[TopicPartition, list[int]] = {P0: [], P1: []}
    sizes: dict[int, int] = {}
    added_ms: dict[int, int] = {}

    def take(all_at_once: bool) -> None:
        for each in waiting.take_ready(now_ms, all_at_once=all_at_once):
            size = sum(sizes[number] for number in each.records)
            assert each.size_bytes == size
            assert size <= BATCH_BYTES or len(each.records) == 1
            taken[each.partition] += each.records

    for number, (partition, size, pause_ms, takes) in enumerate(appends):
        sizes[number], added_ms[number] = size, now_ms
        waiting.append(partition, number, size, now_ms)
        given_to[partition].append(number)
        now_ms += pause_ms
        if takes:
            take(False)
            left = set(sizes) - {n for some in taken.values() for n in some}
            assert all(now_ms < added_ms[n] + LINGER_MS for n in left)
        assert waiting.record_count == len(sizes) - sum(len(each) for each in taken.values())
    take(True)
    assert taken == given_to
    assert (waiting.record_count, waiting.size_bytes) == (0, 0)
