"""An answer to a Fetch that is packed at once has the bytes of the codec."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.fetch.response_parts import pack_response
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
)
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.headers import encode_response_parts

OFFSETS = st.sampled_from((-1, 0, 1, 127, 2**40, 2**63 - 1))
CODES = st.sampled_from((0, 1, 3, 56, 100)).map(ErrorCode)
SIZES = st.sampled_from((0, 1, 126, 127, 128, 9_000, 200_000, 2**28))
TOPICS = st.sampled_from(("a", "b" * 126, "b" * 127, "täglich" * 30))


SMALL_BYTES = 20_000


class _File:
    """Each byte is a digit of its place. Two thirds of the places can be read at once."""

    def pread_now(self, size: int, position: int) -> bytes | None:
        if position % 3 == 0:
            return None
        assert size <= SMALL_BYTES, "more than a few records are sent from the file"
        return self.read(size, position)

    def read(self, size: int, position: int) -> bytes:
        return bytes(48 + (position + number) % 10 for number in range(size))


FILE: Any = _File()


@st.composite
def partitions(draw: st.DrawFn) -> ReadPartition:
    topic_id = UUID(int=draw(st.sampled_from((1, 2**127))))
    request = FetchPartition(partition=draw(st.sampled_from((0, 7, 2**31 - 1))))
    each = ReadPartition(draw(TOPICS), topic_id, "", request)
    each.error_code = draw(CODES)
    each.high_watermark = draw(OFFSETS)
    each.last_stable_offset = draw(OFFSETS)
    each.log_start_offset = draw(OFFSETS)
    each.aborted_transactions = draw(st.sampled_from((None, [])))
    size_bytes = draw(SIZES)
    if size_bytes:
        each.region = ReadRegion(FILE, draw(st.integers(0, 2**31)), size_bytes)
    return each


def joined(parts: list[Any]) -> list[Any]:
    """Bytes as they come out, whatever pieces they are in; those of small regions, too, whether
    they were copied or not, and large regions by themselves."""
    found: list[Any] = [b""]
    for part in parts:
        if isinstance(part, FileRegion | ReadRegion) and part.size <= SMALL_BYTES:
            found[-1] += FILE.read(part.size, part.position)
        elif isinstance(part, FileRegion | ReadRegion):
            found += [(part.file, part.position, part.size), b""]
        else:
            found[-1] += bytes(part)
    return found


def by_codec(
    correlation_id: int, version: int, session_id: int, code: ErrorCode, told: list[ReadPartition]
) -> list[Any]:
    """As the codec gives it."""
    response = FetchResponse(error_code=code, session_id=session_id)
    for each in told:
        last = response.responses[-1] if response.responses else None
        name = "" if version >= 13 else each.topic
        topic_id = each.topic_id if version >= 13 else UUID(int=0)
        if last is None or each is told[0] or _differs(told[told.index(each) - 1], each):
            last = FetchableTopicResponse(topic=name, topic_id=topic_id)
            response.responses.append(last)
        last.partitions.append(each.response_part())
    return encode_response_parts(correlation_id, response, version)


def _differs(one: ReadPartition, other: ReadPartition) -> bool:
    return (one.topic, one.topic_id) != (other.topic, other.topic_id)


@given(
    st.integers(4, 18),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from((0, 1, 2**31 - 1)),
    CODES,
    st.lists(partitions(), max_size=5),
)
def test_packed_answers_are_the_codecs(
    version: int, correlation_id: int, session_id: int, code: ErrorCode, told: list[ReadPartition]
) -> None:
    if version < 7:
        session_id, code = 0, ErrorCode.NONE
    packed = pack_response(correlation_id, version, session_id, code, told)
    if packed is None:
        # The codec's way counts errors.
        assert code or any(each.error_code for each in told)
        return
    assert not code and not any(each.error_code for each in told)
    assert joined(packed) == joined(by_codec(correlation_id, version, session_id, code, told))
    assert all(part if isinstance(part, bytes | bytearray) else part.size for part in packed)


@given(st.integers(0, 18), partitions())
def test_what_is_not_packed_is_the_codecs(version: int, each: ReadPartition) -> None:
    each.diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
    assert pack_response(1, version, 0, ErrorCode.NONE, [each]) is None
    each.diverging_epoch = None
    each.error_code = ErrorCode.NONE
    assert (pack_response(1, version, 0, ErrorCode.NONE, [each]) is None) == (version < 4)
    if each.region is not None:
        each.region, each.records = None, b"records in memory"
        assert pack_response(1, version, 0, ErrorCode.NONE, [each]) is None
