"""A book keeps committed offsets as they are, in columns or not."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.coordinator.group.offsets import Expiry, GroupOffsets, OffsetAndMetadata
from klog_broker.coordinator.group.packed_offsets import FIXED, PackedOffset, unpacked
from pyspark_klog.ids import UUID, LeaderEpoch, Offset, TopicPartition

int64s = st.one_of(st.sampled_from((-1, 0, -(2**63), 2**63 - 1)), st.integers(-(2**63), 2**63 - 1))
committed_offsets = st.builds(
    OffsetAndMetadata,
    int64s.map(Offset),
    st.one_of(st.just(-1), st.integers(-(2**31), 2**31 - 1)).map(LeaderEpoch),
    st.one_of(st.just(""), st.text(max_size=20)),
    int64s,
    int64s,
    st.one_of(st.integers(0, 2**63 - 1), int64s).map(Offset),
    st.sampled_from((0, 2**128 - 1, 7)).map(lambda number: UUID(int=number)),
)
partitions = st.one_of(
    st.integers(0, 12),
    st.sampled_from((-(2**31), -2, -1, 40, 300, 2**31 - 1)),
)
steps = st.tuples(
    st.sampled_from(("put", "put_alone", "put_neighbours", "put_neighbours", "remove")),
    st.sampled_from("ab"),
    partitions,
    st.lists(committed_offsets, min_size=1, max_size=6),
)
ALL_OVER = Expiry(since_ms=-(2**70), kept_topics=frozenset)


def pack(committed: OffsetAndMetadata) -> PackedOffset:
    """Pack an offset as the kernel does."""
    offset, leader_epoch, metadata, commit_ms, expire_ms, record_offset, topic_id = committed
    fixed = (offset, commit_ms, expire_ms, record_offset, leader_epoch, topic_id.bytes)
    return FIXED.pack(*fixed) + metadata.encode()


@given(committed=committed_offsets)
def test_an_offset_is_packed_and_unpacked(committed: OffsetAndMetadata) -> None:
    assert unpacked(pack(committed)) == committed
    assert unpacked(committed) is committed


@given(steps=st.lists(steps, max_size=40), now_ms=int64s)
def test_a_book_is_as_a_dict(
    steps: list[tuple[str, str, int, list[OffsetAndMetadata]]], now_ms: int
) -> None:
    book = GroupOffsets()
    plain: dict[TopicPartition, OffsetAndMetadata] = {}
    for what, topic, first, committed in steps:
        where, one = TopicPartition(topic, first), committed[0]
        if what == "put":
            before = book.put(topic, first, one)
            assert (None if before is None else unpacked(before)) == plain.get(where)
            plain[where] = one
        elif what == "remove":
            before = book.remove(topic, first)
            assert (None if before is None else unpacked(before)) == plain.pop(where, None)
        elif what == "put_alone":
            book.put_outside_block(book.rows_in(topic), first, pack(one))
            plain[where] = one
        else:
            fixed = [each._replace(metadata="") for each in committed]
            book.put_adjacent(book.rows_in(topic), first, b"".join(map(pack, fixed)))
            plain.update((TopicPartition(topic, first + n), each) for n, each in enumerate(fixed))
        _assert_same(book, plain, now_ms)


def _assert_same(
    book: GroupOffsets, plain: dict[TopicPartition, OffsetAndMetadata], now_ms: int
) -> None:
    topics = {place.topic for place in plain}
    assert len(book) == len(plain)
    assert set(book.topics()) == topics
    for topic in "ab":
        assert book.has_topic(topic) == (topic in topics)
        expected = sorted(number for name, number in plain if name == topic)
        assert sorted(book.partitions(topic)) == expected
    for part in book.in_parts(3):
        assert len(part) <= 3
    assert sorted(each for part in book.in_parts(3) for each in part) == sorted(plain)
    assert sorted(book.first_partitions(100)) == sorted(plain)
    assert len(book.first_partitions(2)) == min(2, len(plain))
    around = [TopicPartition(topic, number) for topic in "abc" for number in range(-3, 20)]
    for where in [*plain, *around]:
        assert book.get(where) == plain.get(where)
        kept = plain.get(where)
        assert book.record_offset(*where) == (None if kept is None else kept.record_offset)
    over = [where for where, kept in plain.items() if _is_over(kept, now_ms)]
    assert sorted(book.expired([*plain, *around], ALL_OVER, now_ms, 10)) == sorted(
        over + [where for where in over if where in around]
    )


def _is_over(kept: OffsetAndMetadata, now_ms: int) -> bool:
    if kept.expire_ms >= 0:
        return now_ms >= kept.expire_ms
    return now_ms - kept.commit_ms >= 10


def test_an_offset_expires_when_its_time_is_over_and_not_before() -> None:
    partition = TopicPartition("a", 0)
    expiry = Expiry(since_ms=1_000, kept_topics=frozenset)
    for commit_ms, expire_ms, over_at_ms in ((500, -1, 1_100), (2_000, -1, 2_100), (0, 7, 7)):
        committed = OffsetAndMetadata(
            Offset(5), LeaderEpoch(-1), "", commit_ms, expire_ms, Offset(0), UUID(int=0)
        )
        book = GroupOffsets()
        book.put(*partition, committed)
        assert book.expired([partition], expiry, over_at_ms - 1, 100) == []
        assert book.expired([partition], expiry, over_at_ms, 100) == [partition]
