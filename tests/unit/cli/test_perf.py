"""The figures of `klog perf`, and the batches that it sends."""

import json
from pathlib import Path

import pytest

from klog_broker.cli.perf.batches import (
    BatchSource,
    random_payloads,
    read_payloads,
    records_a_batch,
)
from klog_broker.cli.perf.figures import Flow, Latencies, latency_figures, line
from pyspark_klog.client.errors import SettingError
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec


class TestFigures:
    def test_latencies_are_weighed_by_records(self) -> None:
        latencies = Latencies()
        for number in range(100):
            latencies.add(number + 0.5, 10)
        latencies.add(500.04, 1)
        assert latency_figures(latencies) == {
            "avg_ms": pytest.approx(50.45, abs=0.01),
            "max_ms": 500.04,
            "p50_ms": 50.6,
            "p95_ms": 95.6,
            "p99_ms": 99.6,
            "p99_9_ms": 99.6,
        }
        latencies.add(700, 10)
        assert latencies.percentile_ms(0.999) == 700

    def test_of_nothing(self) -> None:
        assert set(latency_figures(Latencies()).values()) == {0}
        assert Flow(5.0).figures(5.0)["records_per_second"] == 0

    def test_a_line(self) -> None:
        flow = Flow(10.0)
        flow.add(1_000, 1 << 20)
        flow.add(1_000, 1 << 20)
        figures = flow.figures(12.0)
        json.dumps(figures)
        assert line(figures) == "2000 records, 1000.0 records/s (1.00 MB/s)"
        assert line({**figures, "avg_ms": 1.25, "max_ms": 9}).endswith(
            "(1.00 MB/s), 1.2 ms average, 9.0 ms at most"
        )


class TestBatches:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_they_are_whole_and_of_now(self, codec: Codec) -> None:
        source = BatchSource([b"a", b"bb", b"ccc"], codec, None)
        seen = set()
        for number in range(10):
            data, payload_bytes = source.next_batch(4, 1_000 + number)
            view = BatchView(data)
            view.check_crc()
            assert {record.timestamp_ms for record in view.records()} == {1_000 + number}
            assert (view.max_timestamp_ms, view.codec) == (1_000 + number, codec)
            values = [record.value or b"" for record in view.records()]
            assert (len(values), sum(map(len, values))) == (4, payload_bytes)
            seen.add(tuple(values))
        assert len(seen) == 3

    def test_a_batch_that_is_sent_changes_no_other(self) -> None:
        source = BatchSource([b"a"], Codec.NONE, None)
        taken = [source.next_batch(1, 5)[0] for _ in range(10)]
        for data in taken:
            data[:] = bytes(len(data))
        BatchView(source.next_batch(1, 5)[0]).check_crc()

    def test_how_many_records_fit(self) -> None:
        for size in (1, 100, 5_000, 200_000):
            count = records_a_batch(size, 100_000)
            payloads = random_payloads(size, 3)
            data, _ = BatchSource(payloads, Codec.NONE, None).next_batch(count, 0)
            assert len(data) <= 100_000 or count == 1

    def test_payloads_of_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "payloads"
        file.write_text("a||b\n||")
        assert read_payloads(file, "||") == [b"a", b"b\n"]
        file.write_text("")
        with pytest.raises(SettingError, match="holds no payloads"):
            read_payloads(file, "\n")

        with pytest.raises(SettingError, match="--payload-delimiter is empty"):
            read_payloads(file, "")
        with pytest.raises(SettingError, match="cannot read"):
            read_payloads(tmp_path / "none", "\n")
