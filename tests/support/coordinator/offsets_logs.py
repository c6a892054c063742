"""Random logs of __consumer_offsets."""

from typing import Any

from hypothesis import strategies as st

from klog_broker.log.read.read_results import ReadInfo
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.ids import UUID, Offset
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.state_records.consumer_offsets import encode_key, encode_offset_key
from pyspark_klog.state_records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from pyspark_klog.state_records.offset_commit import OffsetCommitValue
from pyspark_klog.state_records.versions import encode_versioned
from tests.support.cluster.state_log import Bytes, MemoryStateLog
from tests.support.records.record_sets import empty_batch

Row = tuple[bytes | None, bytes | None]
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.one_of(st.integers(-2, 100), st.integers(-(2**63), 2**63 - 1))
groups = st.sampled_from(("g", "h", "gr", "ü", ""))
topics = st.sampled_from(("t", "orders", "", "rt", "größe"))
partitions = st.one_of(st.integers(0, 3), int32s)
producers = st.sampled_from((1, 2))
codecs = st.sampled_from((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))
metadata = st.one_of(st.sampled_from(("", "m", "ä" * 40, "x" * 20_000)), st.text(max_size=5))
topic_ids = st.sampled_from((UUID(int=0), UUID(int=7), UUID(int=2**127 + 256)))


@st.composite
def offset_values(draw: st.DrawFn) -> bytes:
    """Values of any version, perhaps with a field of a later version at the end."""
    version = draw(st.integers(0, 4))
    value = OffsetCommitValue(
        offset=draw(int64s),
        leader_epoch=draw(int32s) if version >= 3 else -1,
        metadata=draw(metadata),
        commit_timestamp=draw(int64s),
        expire_timestamp=draw(int64s) if version == 1 else -1,
        topic_id=draw(topic_ids) if version == 4 else UUID(int=0),
    )
    if version == 4 and draw(st.integers(0, 5)) == 0:
        value.unknown_tagged_fields = {9: b"later"}
    return encode_versioned(value, version) + draw(st.sampled_from((b"", b"", b"more")))


# Strategies are made once: hypothesis analyses each new one, which takes longer than drawing.
_offset_values = offset_values()
_maybe_offset_values = st.one_of(st.none(), _offset_values, _offset_values, _offset_values)


@st.composite
def offset_rows(draw: st.DrawFn) -> Row:
    key = encode_offset_key(draw(groups), draw(topics), draw(partitions))
    if draw(st.booleans()):
        key = b"\0\0" + key[2:]
    return key, draw(_maybe_offset_values)


@st.composite
def group_rows(draw: st.DrawFn) -> Row:
    key = encode_key(GroupMetadataKey(group=draw(groups)))
    if draw(st.booleans()):
        return key, None
    members = [
        MemberMetadata(
            member_id="m",
            client_id="c",
            client_host="/h",
            session_timeout=10,
            subscription=b"s",
            assignment=b"a",
        )
    ]
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=draw(st.integers(0, 5)),
        protocol="range",
        leader="m",
        members=members[: draw(st.integers(0, 1))],
    )
    return key, encode_versioned(value, 3)


@st.composite
def odd_rows(draw: st.DrawFn) -> Row:
    """Rows that a load skips: no key, a later kind or version, bytes that do not fit."""
    key = encode_offset_key(draw(groups), draw(topics), draw(partitions))
    value = draw(_offset_values)
    return draw(
        st.sampled_from(
            (
                (None, value),
                (b"\0\3" + key[2:], value),
                (b"\xff\xff" + key[2:], value),
                (key[:-1], value),
                (key[:4] + b"\xff" + key[5:], value),
                (key, b"\0\5" + value[2:]),
                (key, b"\xff\xff" + value[2:]),
                (key, value[:-2]),
                (key, b"\0"),
            )
        )
    )


_offset_rows, _group_rows, _odd_rows = offset_rows(), group_rows(), odd_rows()
_several_rows = st.lists(
    st.one_of(_offset_rows, _offset_rows, _offset_rows, _group_rows), min_size=1, max_size=6
)
_several_offset_rows = st.lists(_offset_rows, min_size=1, max_size=6)
_one_group_row = st.lists(_group_rows, min_size=1, max_size=1)


class LogOfBatches(MemoryStateLog):
    """Read by a few batches at once."""

    def __init__(self, batches_a_read: int) -> None:
        super().__init__()
        self.batches_a_read = batches_a_read

    def read(self, offset: int, max_bytes: int, **_: Any) -> ReadInfo:
        found = [each for each in self.batches if BatchView(each).next_offset > offset]
        data = b"".join(found[: self.batches_a_read])
        region = ReadRegion(Bytes(data), 0, len(data)) if data else None
        return ReadInfo(region, self.high_watermark, self.log_start_offset, None)


def damaged(batch: bytes, where: int, bits: int) -> bytes:
    """Other bytes in the records, and the CRC that fits them."""
    data = bytearray(batch)
    place = at.BATCH_HEADER_BYTES + where % max(len(data) - at.BATCH_HEADER_BYTES, 1)
    if place < len(data):
        data[place] ^= bits
        BatchView(data).update_crc()
    return bytes(data)


def thinned(rows: list[Row], kept: set[int], codec: Codec) -> bytes:
    """A batch of which compaction has left some records."""
    builder = BatchBuilder(codec=codec)
    for delta in sorted(kept):
        builder.append(*rows[delta], 1, offset=delta)
    data = bytearray(builder.build())
    at.INT32.pack_into(data, at.LAST_OFFSET_DELTA_AT, len(rows) - 1)
    BatchView(data).update_crc()
    return bytes(data)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 11))
    if kind == 0:
        ended = draw(st.sampled_from((ControlType.COMMIT, ControlType.ABORT)))
        marker = EndTransactionMarker(ended, 0)
        return bytes(
            end_transaction_batch(
                marker, producer_id=draw(producers), producer_epoch=0, timestamp_ms=0
            )
        )
    several = _several_rows if kind < 4 else _several_offset_rows
    rows = draw(_one_group_row if kind == 1 else several)
    if kind in (2, 8):
        rows.insert(draw(st.integers(0, len(rows))), draw(_odd_rows))
    codec = draw(codecs)
    if kind in (3, 4):
        builder = BatchBuilder(
            codec=codec,
            producer_id=draw(producers),
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    else:
        builder = BatchBuilder(codec=codec)
    for key, value in rows:
        builder.append(key, value, 1, [("h", b"v")] if draw(st.integers(0, 9)) == 0 else [])
    batch = bytes(builder.build())
    if kind == 5:
        return bytes(empty_batch(BatchView(batch)))
    if kind == 6:
        kept = draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))
        return thinned(rows, kept, codec)
    if kind == 7 and draw(st.integers(0, 3)) == 0:
        return damaged(batch, draw(st.integers(0, 10_000)), draw(st.integers(1, 255)))
    return batch


_batch_lists = st.lists(batches(), min_size=1, max_size=20)


@st.composite
def logs(draw: st.DrawFn) -> LogOfBatches:
    log = LogOfBatches(draw(st.integers(1, 12)))
    for batch in draw(_batch_lists):
        # An offset that comes again does not count: the replay has passed it.
        again = -1 if log.log_end_offset else 0
        log.put(batch, gap=draw(st.sampled_from((0, 0, 0, 0, 3, again))))
    log.follows = False
    end = int(log.log_end_offset)
    offsets = st.integers(0, end)
    log.high_watermark = Offset(draw(st.one_of(st.just(end), st.just(end), offsets)))
    log.log_start_offset = Offset(draw(st.one_of(st.just(0), st.just(0), offsets)))
    return log
