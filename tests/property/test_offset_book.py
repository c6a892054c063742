"""A book keeps committed offsets as they are, packed or not."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.coordinator.group.offsets import CommittedOffset, Expiry, OffsetBook
from klog_broker.coordinator.group.packed_offsets import FIXED, PackedOffset, unpacked
from pyspark_klog.ids import UUID, LeaderEpoch, Offset, TopicPartition

int64s = st.integers(-(2**63), 2**63 - 1)
committed_offsets = st.builds(
    CommittedOffset,
    int64s.map(Offset),
    st.integers(-(2**31), 2**31 - 1).map(LeaderEpoch),
    st.text(max_size=20),
    int64s,
    int64s,
    int64s.map(Offset),
    st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number)),
)
ALL_OVER = Expiry(since_ms=-(2**70), kept_topics=frozenset)


def pack(committed: CommittedOffset) -> PackedOffset:
    """As the kernel does it."""
    offset, leader_epoch, metadata, commit_ms, expire_ms, record_offset, topic_id = committed
    fixed = (offset, commit_ms, expire_ms, record_offset, leader_epoch, topic_id.bytes)
    return FIXED.pack(*fixed) + metadata.encode()


@given(committed=committed_offsets)
def test_an_offset_is_packed_and_unpacked(committed: CommittedOffset) -> None:
    assert unpacked(pack(committed)) == committed
    assert unpacked(committed) is committed


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(("put", "put_row", "put_rows", "remove")),
            st.sampled_from("ab"),
            st.lists(st.integers(0, 2), min_size=1, max_size=3),
            committed_offsets,
        )
    ),
    now_ms=int64s,
)
def test_a_packed_book_is_as_one_that_is_not(
    steps: list[tuple[str, str, list[int], CommittedOffset]], now_ms: int
) -> None:
    book, plain = OffsetBook(), OffsetBook()
    for what, topic, partitions, committed in steps:
        if what == "remove":
            for number in partitions:
                before, expected = book.remove(topic, number), plain.remove(topic, number)
                assert (before is None) == (expected is None)
                assert before is None or expected is None or unpacked(before) == unpacked(expected)
            continue
        if what == "put":
            book.put(topic, partitions[0], committed)
            partitions = partitions[:1]
        elif what == "put_row":
            book.put_row(book.rows_in(topic), partitions[0], pack(committed))
            partitions = partitions[:1]
        else:
            packed = [pack(committed)] * len(partitions)
            book.put_rows(book.rows_in(topic), partitions, packed)
        for number in partitions:
            plain.put(topic, number, committed)
    places = plain.some(100)
    assert set(book.some(100)) == set(places)
    assert len(book) == len(plain) == len(places)
    assert len(book.some(2)) == min(2, len(book))
    for where in [*places, TopicPartition("a", 9), TopicPartition("c", 0)]:
        assert book.get(where) == plain.get(where)
        assert book.record_offset(*where) == plain.record_offset(*where)
    assert book.expired(places, ALL_OVER, now_ms, 10) == plain.expired(places, ALL_OVER, now_ms, 10)
