"""Kafka's own record classes, through JavaRecords.java, as a writer and as an oracle."""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from tests.support.golden.cases import (
    CODECS,
    CREATE_TIME,
    LOG_APPEND_TIME,
    START_MS,
    Expected,
    Golden,
    large,
    sample,
)
from tests.support.peers import java, kafka_jars

_PROGRAM = Path(__file__).parents[1] / "java" / "JavaRecords.java"
_RELEASE = "3.9.1"
_APPEND_MS = START_MS + 86_400_000


@dataclass
class JavaBatch:
    """A batch for MemoryRecordsBuilder to write."""

    magic: int
    codec: str
    records: Sequence[Expected]
    timestamp_type: str = CREATE_TIME
    base_offset: int = 0
    append_ms: int = -1
    producer: tuple[int, int, int] = (-1, -1, -1)
    is_transactional: bool = False
    leader_epoch: int = -1
    delete_horizon_ms: int = -1

    def commands(self) -> Iterator[str]:
        fields = (
            "batch",
            self.magic,
            self.codec,
            self.timestamp_type,
            self.base_offset,
            self.append_ms,
            *self.producer,
            str(self.is_transactional).lower(),
            self.leader_epoch,
            self.delete_horizon_ms,
        )
        yield " ".join(str(item) for item in fields)
        for record in self.records:
            headers = ",".join(f"{k.encode().hex()}:{_text(v)}" for k, v in record.headers) or "."
            key, value = _text(record.key), _text(record.value)
            yield f"record {record.offset} {record.timestamp_ms} {key} {value} {headers}"
        yield "end"


def _text(data: bytes | None) -> str:
    return "null" if data is None else "x" + data.hex()


def run_java(commands: Sequence[str]) -> list[str]:
    """Give the program its commands, get its lines back: one for each but ``record``."""
    classpath = f"{kafka_jars(_RELEASE)}/*"
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
        file.write("\n".join(commands) + "\n")
        file.flush()
        result = subprocess.run(
            [java(), "-Xshare:auto", "-cp", classpath, str(_PROGRAM), file.name],
            check=True,
            capture_output=True,
            text=True,
        )
    return result.stdout.splitlines()


def write_with_java(batches: Sequence[JavaBatch]) -> list[bytes]:
    """The bytes that Kafka's MemoryRecordsBuilder makes of each."""
    lines = run_java([line for batch in batches for line in batch.commands()])
    return [bytes.fromhex(line) for line in lines]


@dataclass
class _Case:
    name: str
    batch: JavaBatch
    header: dict[str, int | bool] = field(default_factory=dict)
    expected: Sequence[Expected] | None = None  # if they differ from the batch's records


def java_goldens() -> Iterator[Golden]:
    release = f"Apache Kafka {_RELEASE}"
    cases = list(_cases())
    written = write_with_java([case.batch for case in cases])
    for case, data in zip(cases, written, strict=True):
        expected = case.batch.records if case.expected is None else case.expected
        yield Golden(
            f"java-{case.name}", release, case.batch.codec, data, list(expected), case.header
        )
    yield from _control_goldens(release)
    mixed = [
        JavaBatch(magic, "gzip", sample(magic, 10 * magic), base_offset=10 * magic)
        for magic in (0, 1, 2)
    ]
    records = [record for batch in mixed for record in batch.records]
    yield Golden("java-mixed", release, "gzip", b"".join(write_with_java(mixed)), records)


def _cases() -> Iterator[_Case]:
    for magic, codec in product((0, 1, 2), CODECS):
        if magic < 2 and codec == "zstd":
            continue
        base = 1000 * magic + 100
        plain = JavaBatch(magic, codec, sample(magic, base), base_offset=base)
        yield _Case(f"v{magic}-{codec}", plain)
        if codec != "none":
            yield _Case(f"v{magic}-{codec}-blocks", JavaBatch(magic, codec, large(magic)))
        if magic > 0:
            asked = sample(magic, base)
            given = [
                Expected(r.offset, _APPEND_MS, LOG_APPEND_TIME, r.key, r.value, r.headers)
                for r in asked
            ]
            append = JavaBatch(magic, codec, asked, LOG_APPEND_TIME, base, _APPEND_MS)
            yield _Case(f"v{magic}-{codec}-append-time", append, expected=given)
    gaps = [Expected(r.offset * 7 + 40, *_rest(r)) for r in sample(2)]
    for magic, codec in product((1, 2), ("none", "gzip")):
        kept = [
            Expected(
                r.offset,
                r.timestamp_ms,
                CREATE_TIME,
                r.key,
                r.value,
                r.headers if magic == 2 else (),
            )
            for r in gaps
        ]
        yield _Case(f"v{magic}-{codec}-gaps", JavaBatch(magic, codec, kept, base_offset=40))
    horizon = JavaBatch(
        2, "lz4", sample(2), base_offset=0, delete_horizon_ms=_APPEND_MS, leader_epoch=9
    )
    yield _Case(
        "v2-lz4-delete-horizon",
        horizon,
        {"has_delete_horizon": True, "delete_horizon_ms": _APPEND_MS, "partition_leader_epoch": 9},
    )
    wrapping = JavaBatch(
        2,
        "none",
        sample(2, 2**40),
        base_offset=2**40,
        producer=(2**62, 32767, 2**31 - 3),
        is_transactional=True,
        leader_epoch=5,
    )
    yield _Case(
        "v2-none-sequence-wraps",
        wrapping,
        {
            "producer_id": 2**62,
            "producer_epoch": 32767,
            "base_sequence": 2**31 - 3,
            "last_sequence": 2,
            "is_transactional": True,
            "partition_leader_epoch": 5,
            "base_offset": 2**40,
            "next_offset": 2**40 + 6,
        },
    )


def _rest(
    record: Expected,
) -> tuple[int, str, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    return record.timestamp_ms, record.timestamp_type, record.key, record.value, record.headers


def _control_goldens(release: str) -> Iterator[Golden]:
    """Ends of transactions, and the header that compaction leaves of an emptied batch."""
    for kind, number in (("abort", 0), ("commit", 1)):
        line = run_java([f"marker {kind} 77 {START_MS} 4 4711 3 12"])[0]
        key = bytes((0, 0, 0, number))
        value = bytes((0, 0, 0, 0, 0, 12))
        header: dict[str, int | bool] = {
            "is_control": True,
            "is_transactional": True,
            "producer_id": 4711,
            "producer_epoch": 3,
            "base_sequence": -1,
            "last_sequence": -1,
            "partition_leader_epoch": 4,
        }
        record = Expected(77, START_MS, CREATE_TIME, key, value)
        yield Golden(f"java-{kind}", release, "none", bytes.fromhex(line), [record], header)
    line = run_java([f"empty 4711 3 17 100 105 6 CREATE_TIME {START_MS} true false"])[0]
    header = {
        "producer_id": 4711,
        "producer_epoch": 3,
        "base_sequence": 17,
        "last_sequence": 22,
        "base_offset": 100,
        "last_offset": 105,
        "partition_leader_epoch": 6,
        "record_count": 0,
        "max_timestamp_ms": START_MS,
        "base_timestamp_ms": -1,
        "is_transactional": True,
    }
    yield Golden("java-v2-empty", release, "none", bytes.fromhex(line), [], header)
