"""The text files that Spark writes for each micro-batch: `offsets/N` and `commits/N`. Pure.

`offsets/N` has a version (`v1` or `v2`), the query's settings as JSON, and a line for each source
with the source's end of batch N. `v1` identifies a source by the position of its line; `v2`, which
Spark 4.1 added, has the source's name and a colon before the end. A source without an end has `-`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_klog.checkpoint.errors import CheckpointError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError
from pyspark_klog.spark.offsets import Offsets, from_json_dict, to_json_dict

_VERSIONS = ("v1", "v2")
_NO_END = "-"


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """The end of one source in a file of the folder offsets."""

    source_id: str
    """The number of the source in the query; with `v2` its name, which is a number by default."""
    text: str
    """The end in the source's own JSON, or `-`."""
    offsets: Offsets | None
    """The end by partition; None if the text does not have the JSON form of Kafka's offsets."""

    def with_offsets(self, offsets: Mapping[TopicPartition, int]) -> "SourceEnd":
        """The same source with other offsets, in the spacing of its present text: klog writes a
        space after colons and commas, Spark's own Kafka connector writes none."""
        separators = None if ": " in self.text else (",", ":")
        text = json.dumps(to_json_dict(offsets), separators=separators)
        return replace(self, text=text, offsets=dict(offsets))


@dataclass(frozen=True, slots=True)
class BatchEnds:
    """A file of the folder offsets: the ends of all sources in one micro-batch."""

    version: str
    settings: str
    """The second line: watermark, time and settings of the batch, as JSON."""
    sources: tuple[SourceEnd, ...]

    @property
    def watermark_ms(self) -> int:
        """The watermark of the batch in ms since 1970; 0 if the query has none."""
        return _number_in(self.settings, "batchWatermarkMs")

    @property
    def planned_at_ms(self) -> int:
        """When Spark planned the batch, in ms since 1970; 0 if the file does not say."""
        return _number_in(self.settings, "batchTimestampMs")

    def text(self) -> str:
        """The file's text, as Spark writes it."""
        return "\n".join([self.version, self.settings, *map(self._line, self.sources)])

    def _line(self, source: SourceEnd) -> str:
        return source.text if self.version == "v1" else f"{source.source_id}:{source.text}"


def parse_batch_ends(text: str, name: str) -> BatchEnds:
    """Parse the file ``name`` of the folder offsets.

    :raises CheckpointError: if the text is not such a file
    """
    version, *rest = _lines(text)
    _check_version(version, name)
    if not rest:
        raise CheckpointError(f"{name} ends after its first line; expected the batch's settings")
    settings, *ends = rest
    if version == "v1":
        numbered = [(str(number), end) for number, end in enumerate(ends)]
    else:
        numbered = [_split_v2(line, name) for line in ends]
    sources = tuple(SourceEnd(source, end, _kafka_offsets(end, name)) for source, end in numbered)
    return BatchEnds(version, settings, sources)


def parse_next_watermark(text: str, name: str) -> int:
    """The watermark of the next batch, in ms since 1970, from the file ``name`` of the folder
    commits; 0 if the query has none.

    :raises CheckpointError: if the text is not such a file
    """
    version, *rest = _lines(text)
    if not version.startswith("v"):
        _check_version(version, name)
    return _number_in(rest[0], "nextBatchWatermarkMs") if rest else 0


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _check_version(version: str, name: str) -> None:
    if version not in _VERSIONS:
        found = f"begins with {version[:40]!r}" if version else "is empty"
        raise CheckpointError(
            f"{name} {found}; expected {' or '.join(_VERSIONS)} in its first line: the file is "
            "damaged, or of a Spark release that is newer than this klog"
        )


def _split_v2(line: str, name: str) -> tuple[str, str]:
    source, colon, end = line.partition(":")
    if not colon:
        raise CheckpointError(
            f"{name} has the line {line[:40]!r}; expected the source's name, a colon and its end"
        )
    return source, end


def _kafka_offsets(end: str, name: str) -> Offsets | None:
    if end == _NO_END:
        return None
    try:
        return from_json_dict(json.loads(end), name)
    except (ValueError, RecursionError, OffsetError):
        return None


def _number_in(text: str, key: str) -> int:
    try:
        found = json.loads(text)
    except ValueError:
        return 0
    number = found.get(key) if isinstance(found, dict) else None
    return number if isinstance(number, int) else 0
