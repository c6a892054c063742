"""The lines that `klog consume` prints for records, and how it reads records from record sets."""

import json

import pytest

from klog_broker.cli.perf.consumer_perf import count_records
from klog_broker.cli.records import record_reader
from klog_broker.cli.records.record_output import FIELDS, RecordFormat
from klog_broker.cli.records.record_reader import Columns, RecordReader
from pyspark_klog.client.consumer.continuous_reader import Fetched
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.errors import CorruptRecords

P = TopicPartition("t", 3)


def some() -> Columns:
    return Columns(
        P,
        offsets=[5, 8],
        timestamps_ms=[1_000, -1],
        timestamp_types=[0, -1],
        keys=[b"k", None],
        values=[b"\xff\x1b[2J\n", None],
        headers=[[("h", b"1"), ("n", None)], []],
    )


class TestFormat:
    def test_values(self) -> None:
        assert RecordFormat().lines(some()) == b"\xff\x1b[2J\n\nnull\n"
        assert RecordFormat(null_value=b"").lines(some().up_to(1)) == b"\xff\x1b[2J\n\n"
        assert RecordFormat().lines(some().up_to(0)) == b""

    def test_all_fields_in_the_order_that_is_given(self) -> None:
        fields = (*FIELDS[:-1][::-1],)
        assert RecordFormat(fields, separator=b"|").lines(some()) == (
            b"k|h:1,n:null|CreateTime|1000|5|3|t\nnull||none|-1|8|3|t\n"
        )

    def test_a_terminal_obeys_nothing(self) -> None:
        form = RecordFormat(("value", "key"), for_terminal=True)
        assert form.lines(some()) == b"\\xff\\x1b[2J\\n\tk\nnull\tnull\n"

    def test_json(self) -> None:
        first, second = map(json.loads, RecordFormat(as_json=True).lines(some()).splitlines())
        assert first == {
            "topic": "t",
            "partition": 3,
            "offset": 5,
            "timestamp": 1_000,
            "timestamp_type": "CreateTime",
            "key": "k",
            "value_base64": "/xtbMkoK",
            "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
        }
        assert (second["timestamp"], second["key"], second["value"]) == (None, None, None)


def transactions() -> Fetched:
    """Records of two producers: 7's transaction is aborted, 8's is committed."""
    data = b""
    for offset, producer_id in ((0, 7), (2, 8)):
        builder = BatchBuilder(
            offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        for number in range(2):
            builder.append(b"%d" % producer_id, b"v", 1_000 + number, [("h", None)])
        data += builder.build()
    data += end_transaction_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=1_000,
        base_offset=4,
    )
    return Fetched(P, 1, memoryview(data), [(7, 0)], 5)


@pytest.fixture(params=["kernels", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "kernels":
        monkeypatch.setattr(record_reader, "MUCH_BYTES", 0)
    return str(request.param)


class TestReader:
    def test_what_is_wanted_and_committed(self, way: str) -> None:
        assert way
        (found,) = RecordReader(FIELDS, check_crcs=True).read(transactions())
        assert found == Columns(
            P,
            offsets=[2, 3],
            timestamps_ms=[1_000, 1_001],
            timestamp_types=[0, 0],
            keys=[b"8", b"8"],
            values=[b"v", b"v"],
            headers=[[("h", None)]] * 2,
        )
        (all_of,) = RecordReader(("value",), check_crcs=True).read(
            transactions()._replace(aborted=[])
        )
        assert all_of == Columns(P, offsets=[1, 2, 3], values=[b"v"] * 3)

    def test_times_of_the_far_future(self, way: str) -> None:
        assert way
        builder = BatchBuilder(5)
        builder.append(None, b"a", 2**62)
        fetched = Fetched(P, 5, memoryview(builder.build()), [], 6)
        (found,) = RecordReader(("timestamp",), check_crcs=True).read(fetched)
        assert list(found.timestamps_ms) == [2**62]

    def test_damage_is_reported(self, way: str) -> None:
        assert way
        fetched = transactions()
        data = bytearray(fetched.data)
        data[70] ^= 1
        damaged = fetched._replace(data=memoryview(data))
        with pytest.raises(CorruptRecords, match=r"^t-3, .*offset \d+\W.* CRC 0x"):
            list(RecordReader(("value",), check_crcs=True).read(damaged))
        with pytest.raises(CorruptRecords, match=r"^t-3, .*base offset \d+\W.* CRC 0x"):
            count_records(damaged, check_crcs=True)
