"""Raw fetch on one connection, one request outstanding: chunks of 1 MB and of 200 KB.

Fetch has the newest version that both brokers support; chunks of 200 KB are also measured in the
versions of older clients.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from benchmarks import _brokers
from benchmarks._brokers import KLOG, Pair, Side
from benchmarks._load.bare import Bare, BareLoop
from benchmarks._load.frames import fetch_frame, one_batch
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import FetchAll, Measured, Messages, PipelinedProduce
from benchmarks._report import ceiling_note, load_note, median_of, per_cpu_second, print_row
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey

# Batches of 16 KB, the default of Kafka's own producer; 500 MB of log on each side.
_MESSAGES_PER_BATCH = 76
_BATCHES = 31_000
_MEGABYTE = 1e6
_CHUNKS = (("1 MB", 1_048_576, 1.3), ("200 KB", 204_800, 1.5))
_OF_THE_CEILING = 0.8
_OLD_VERSIONS = (4, 9)


def run(_: argparse.Namespace) -> list[Row]:
    with (
        _brokers.both() as pair,
        Generator() as generator,
        BareLoop() as bare,
        ExitStack() as stack,
    ):
        version = pair.common_version(ApiKey.FETCH)
        progress("filling a topic on each side")
        topics: dict[str, str] = {}
        for side in (pair.klog, pair.kafka):
            topics[side.name] = stack.enter_context(side.topic("fetch"))
            _fill(pair, side, generator, topics[side.name])
        rows: list[Row] = []
        for text, chunk_bytes, bar in _CHUNKS:
            progress(f"chunks of {text}")
            found_here = in_turns(
                *(
                    partial(_fetch, side, generator, topics[side.name], version, chunk_bytes)
                    for side in (pair.klog, pair.kafka)
                ),
                partial(_fetch_bare, bare, pair, generator, topics[KLOG], version, chunk_bytes),
            )
            rows += _rows(f"chunks of {text} (Fetch {version})", bar, *found_here)
        for old in _OLD_VERSIONS:
            text, chunk_bytes, _bar = _CHUNKS[-1]
            progress(f"chunks of {text} (Fetch {old})")
            klog, kafka = in_turns(
                *(
                    partial(_fetch, side, generator, topics[side.name], old, chunk_bytes)
                    for side in (pair.klog, pair.kafka)
                )
            )
            rows += _rows(f"chunks of {text} (Fetch {old})", 1.0, klog, kafka)
    return rows


def _fill(pair: Pair, side: Side, generator: Generator, topic: str) -> None:
    """Write the same bytes on both sides, and read them once with every CRC checked."""
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


def _fetch_bare(
    bare: BareLoop, pair: Pair, generator: Generator, topic: str, version: int, chunk_bytes: int
) -> Measured:
    """Fetch the records of klog's file from a bare loop."""
    end = sized(_BATCHES) * _MESSAGES_PER_BATCH
    (path,) = (pair.klog.data / f"{topic}-0").glob("*.log")
    target = pair.klog.target(topic)
    job = FetchAll(target, version, chunk_bytes, end)
    _, offset_at = fetch_frame(job)
    answers = Bare(
        path=str(path),
        version=version,
        topic_id=target.topic_id,
        chunk_bytes=chunk_bytes,
        batch_bytes=len(one_batch(Messages(_MESSAGES_PER_BATCH))),
        records=_MESSAGES_PER_BATCH,
        offset_at=offset_at,
    )
    return generator.run(replace(job, target=bare.serve(answers, topic)))


def _rows(
    work: str,
    bar: float,
    klog: Sequence[Measured],
    kafka: Sequence[Measured],
    ceiling: Sequence[Measured] = (),
) -> Iterator[Row]:
    yield print_row(
        Row(
            work,
            "MB/s",
            median_of(klog, "log_bytes") / _MEGABYTE,
            median_of(kafka, "log_bytes") / _MEGABYTE,
            bar,
            note=load_note(klog, kafka),
        )
    )
    yield print_row(
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
    if not ceiling:
        return
    yield print_row(
        Row(
            f"{work} beside a bare loop",
            "MB/s",
            median_of(klog, "log_bytes") / _MEGABYTE,
            median_of(ceiling, "log_bytes") / _MEGABYTE,
            _OF_THE_CEILING,
            note=ceiling_note(klog, ceiling, "log_bytes", "MB/s", _MEGABYTE),
        )
    )


def _cpu_us_per_megabyte(runs: Sequence[Measured]) -> float:
    return 1e6 * _MEGABYTE / max(per_cpu_second(runs, "log_bytes"), 1.0)
