"""One cleaning of a log on either broker: started, timed by the broker, and checked."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks._brokers import KLOG, Side
from benchmarks._keyed_log import KeyedLog
from benchmarks._load.jobs import LoadFailed
from benchmarks._processes import cpu_seconds
from pyspark_klog.client.errors import broker_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pyspark_klog.records.layout import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    RECORD_COUNT_AT,
)

# Both brokers use 24 bytes for a key: the keys of 2 GB fit into the buffer, so that one round
# cleans the whole log.
BROKER_SETTINGS = {
    "log.cleaner.enable": "true",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(256 << 20),
    "log.cleaner.backoff.ms": "100",
}
# A log that was never cleaned has a dirty ratio of 1, and is cleaned if that exceeds the setting.
_DIRTY_RATIO = "min.cleanable.dirty.ratio"
_HELD_OFF, _EAGER = "1", "0.01"
_TOPIC_RESOURCE = 2
_POLL_S = 0.05
_DEADLINE_S = 900.0
_READ_BYTES = 8 << 20
# klog logs one line for a round; of Apache Kafka's lines this needs the first three and the one
# with the end size.
_KLOG_ROUND = re.compile(
    r"log=(?P<log>\S+) cleaned_to=(?P<end>\d+) .* kept_records=(?P<kept>\d+) "
    r".*took_ms=(?P<took_ms>\d+)"
)
_KAFKA_ROUND = re.compile(
    r"cleaned log (?P<log>\S+) \(dirty section = \[\d+, (?P<end>\d+)\]\)\s+"
    r"(?P<mb>[\d,.]+) MB of log processed in [\d,.]+ seconds \((?P<rate>[\d,.]+) MB/sec\)"
    r"(?:.*\n)+?\s*End size: [\d,.]+ MB \((?P<kept>[\d,]+) messages\)"
)


@dataclass(frozen=True)
class Cleaned:
    """One cleaning: ``seconds`` is from the broker's own log line, ``ended_s`` is monotonic."""

    seconds: float
    broker_cpu_s: float
    log_bytes: int
    """The bytes of the closed segments, which were cleaned."""
    kept_bytes: int
    kept_records: int
    ended_s: float

    @property
    def began_s(self) -> float:
        return self.ended_s - self.seconds


@contextmanager
def dirty_topic(side: Side, log: KeyedLog) -> Iterator[str]:
    """A topic with the log, on disk and in the page cache, that no cleaner touches yet."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(log.segment_bytes),
        _DIRTY_RATIO: _HELD_OFF,
    }
    with side.topic("compaction", configs=configs) as topic:
        log.produce(side, topic)
        for path in _log_files(side, topic):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                while file.read(_READ_BYTES):
                    pass
        yield topic


def clean(side: Side, topic: str, log: KeyedLog) -> Cleaned:
    """Let the cleaner clean a dirty topic, and wait for the end of the round.

    Raises LoadFailed if the last record of each key is not all that was kept.
    """
    *closed, active = _log_files(side, topic)
    end = int(active.stem)
    log_bytes = sum(path.stat().st_size for path in closed)
    before_s = cpu_seconds(side.pid)
    _set_dirty_ratio(side, topic, _EAGER)
    seconds, kept = _wait(side, topic, end)
    ended_s = time.monotonic()
    cpu_s = cpu_seconds(side.pid) - before_s
    files = _log_files(side, topic)
    in_files = sum(_records_in(path) for path in files)
    expected = log.kept(end)
    in_active = len(log.keys) - end
    if in_files != expected or kept != expected - in_active:
        raise LoadFailed(
            f"{side.name}: {in_files} records in {topic}, of which {kept} were kept; expected "
            f"{expected}, of which {in_active} are in the active segment"
        )
    kept_bytes = sum(path.stat().st_size for path in files) - active.stat().st_size
    return Cleaned(seconds, cpu_s, log_bytes, kept_bytes, kept, ended_s)


def _wait(side: Side, topic: str, end: int) -> tuple[float, int]:
    """Wait for a round that reaches the offset; return its seconds and the records it kept."""
    rounds = _klog_rounds if side.name == KLOG else _kafka_rounds
    deadline_s = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline_s:
        found = list(rounds(side.output(), f"{topic}-0"))
        if found:
            if len(found) > 1 or found[0][0] != end:
                raise LoadFailed(f"{side.name} cleaned {topic} in rounds to {found}, not to {end}")
            return found[0][1], found[0][2]
        time.sleep(_POLL_S)
    raise LoadFailed(f"{side.name} did not clean {topic} within {_DEADLINE_S:g} s")


Round = tuple[int, float, int]  # end offset, seconds, records kept


def _klog_rounds(output: str, partition: str) -> Iterator[Round]:
    for line in _KLOG_ROUND.finditer(output):
        if Path(line["log"]).name == partition:
            yield int(line["end"]), int(line["took_ms"]) / 1000, int(line["kept"])


def _kafka_rounds(output: str, partition: str) -> Iterator[Round]:
    for line in _KAFKA_ROUND.finditer(output):
        if line["log"] == partition:
            # Kafka's seconds have one decimal; the size and the rate have more digits.
            yield (
                int(line["end"]),
                _number(line["mb"]) / _number(line["rate"]),
                int(_number(line["kept"])),
            )


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _log_files(side: Side, topic: str) -> list[Path]:
    """The segments' files, the active one last."""
    return sorted((side.data / f"{topic}-0").glob("*.log"))


def _records_in(path: Path) -> int:
    """The number of records in a file, by the headers of its batches."""
    count = at = 0
    size = path.stat().st_size
    with path.open("rb") as file:
        while at < size:
            file.seek(at)
            header = file.read(BATCH_HEADER_BYTES)
            length = int.from_bytes(header[BATCH_LENGTH_AT : BATCH_LENGTH_AT + 4], "big")
            count += int.from_bytes(header[RECORD_COUNT_AT : RECORD_COUNT_AT + 4], "big")
            at += LOG_OVERHEAD_BYTES + length
    return count


def _set_dirty_ratio(side: Side, topic: str, ratio: str) -> None:
    def build(_: int) -> IncrementalAlterConfigsRequest:
        row = AlterableConfig(name=_DIRTY_RATIO, config_operation=0, value=ratio)
        resource = AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[row]
        )
        return IncrementalAlterConfigsRequest(resources=[resource])

    link = side.client.link_to_any(side.client.deadline())
    reply = side.client.call(link, IncrementalAlterConfigsResponse, build)
    for each in reply.responses:
        if each.error_code != ErrorCode.NONE:
            raise broker_error(ErrorCode(each.error_code), f"{_DIRTY_RATIO} of {topic}")
