"""Raw fetch on one connection, one request outstanding: chunks of 1 MB and of 200 KB."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks import _brokers
from benchmarks._brokers import Pair, Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import FetchAll, Measured, Messages, PipelinedProduce
from benchmarks._report import found, load_note, median_of, per_cpu_second
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey

# 16 KB batches, as Kafka's own producer makes them by default; 500 MB of log on each side.
_MESSAGES_PER_BATCH = 76
_BATCHES = 31_000
_MEGABYTE = 1e6
_CHUNKS = (("1 MB", 1_048_576), ("200 KB", 204_800))


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, Generator() as generator, ExitStack() as stack:
        version = pair.common_version(ApiKey.FETCH)
        progress("filling a topic on each side")
        topics: dict[str, str] = {}
        for side in (pair.klog, pair.kafka):
            topics[side.name] = stack.enter_context(side.topic("fetch"))
            _fill(pair, side, generator, topics[side.name])
        rows: list[Row] = []
        for text, chunk_bytes in _CHUNKS:
            progress(f"chunks of {text}")

            klog, kafka = in_turns(
                *(
                    partial(_fetch, side, generator, topics[side.name], version, chunk_bytes)
                    for side in (pair.klog, pair.kafka)
                )
            )
            rows += _rows(f"chunks of {text} (Fetch {version})", klog, kafka)
    return rows


def _fill(pair: Pair, side: Side, generator: Generator, topic: str) -> None:
    """The same bytes on both sides; read once with every CRC checked."""
    generator.run(
        PipelinedProduce(
            side.target(topic),
            pair.common_version(ApiKey.PRODUCE),
            acks=1,
            requests=sized(_BATCHES),
            messages=Messages(_MESSAGES_PER_BATCH),
        )
    )
    end = sized(_BATCHES) * _MESSAGES_PER_BATCH
    side.expect_records(topic, end)
    version = pair.common_version(ApiKey.FETCH)
    generator.run(FetchAll(side.target(topic), version, _CHUNKS[0][1], end, check_crc=True))


def _fetch(
    side: Side, generator: Generator, topic: str, version: int, chunk_bytes: int
) -> Measured:
    end = sized(_BATCHES) * _MESSAGES_PER_BATCH
    return generator.run(FetchAll(side.target(topic), version, chunk_bytes, end))


def _rows(work: str, klog: Sequence[Measured], kafka: Sequence[Measured]) -> Iterator[Row]:
    yield found(
        Row(
            work,
            "MB/s",
            median_of(klog, "log_bytes") / _MEGABYTE,
            median_of(kafka, "log_bytes") / _MEGABYTE,
            1.2,
            note=load_note(klog, kafka),
        )
    )
    yield found(
        Row(
            work,
            "CPU us/MB",
            _cpu_us_per_megabyte(klog),
            _cpu_us_per_megabyte(kafka),
            0.6,
            lower_is_better=True,
            note="CPU of the broker's process; bytes of whole batches",
        )
    )


def _cpu_us_per_megabyte(runs: Sequence[Measured]) -> float:
    return 1e6 * _MEGABYTE / max(per_cpu_second(runs, "log_bytes"), 1.0)
