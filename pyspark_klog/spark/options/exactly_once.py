"""The options of the exactly-once sink as values. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_klog.spark.options.rows import read_option, read_optional
from pyspark_klog.spark.options.values import WholeNumber

_BATCH, _QUERY, _RUN = "klog.microbatch.id", "klog.microbatch.query", "klog.microbatch.run"


class MicroBatch(NamedTuple):
    """A micro-batch to write; ``batch_writer`` passes it to its batch write."""

    query_id: str
    batch_id: int
    run_id: str

    @classmethod
    def of_batch_write(cls, write_id: str) -> "MicroBatch":
        """The identity of a batch write outside any streaming query; it is never retried under the
        same id."""
        return cls(write_id, 0, write_id)

    @property
    def is_batch_write(self) -> bool:
        """Whether the write belongs to no streaming query."""
        return self.query_id == self.run_id

    def as_options(self) -> dict[str, str]:
        """The micro-batch as options of the batch write; users never set these options."""
        return {_QUERY: self.query_id, _BATCH: str(self.batch_id), _RUN: self.run_id}


class ExactlyOnce(NamedTuple):
    """The values of option exactlyOnce and its related options."""

    prefix: str = read_option({}, "exactlyOncePrefix", str)
    name: str = read_option({}, "exactlyOnceName", str)
    topic: str | None = None
    """The topic whose partition 0 the progress rows name; None only before `check_sink`."""
    keep_on_mismatch: bool = False
    """Whether a repeated task keeps its committed rows although its rows differ from them."""
    continue_on_missing: bool = False
    """Whether a query goes on although progress rows are missing, or too old to be trusted."""
    query: str | None = None
    """Replaces the id of the query; for batch_writer under Spark Connect."""
    micro_batch: MicroBatch | None = None
    """The micro-batch of a batch write that ``batch_writer`` makes."""


def read_exactly_once(options: Mapping[str, str]) -> ExactlyOnce | None:
    """Read the options, which are keyed in lower case; None without exactlyOnce=true.

    :raises OptionError: for the first wrong option, with or without exactlyOnce=true
    """
    found = ExactlyOnce(
        keep_on_mismatch=read_option(options, "exactlyOnceMismatch", str) == "keep",
        continue_on_missing=read_option(options, "exactlyOnceMissing", str) == "continue",
        prefix=read_option(options, "exactlyOncePrefix", str),
        name=read_option(options, "exactlyOnceName", str),
        topic=read_optional(options, "exactlyOnceTopic", str)
        or read_optional(options, "topic", str),
        query=read_optional(options, "exactlyOnceQuery", str),
        micro_batch=_read_micro_batch(options),
    )
    return found if read_option(options, "exactlyOnce", bool) else None


def _read_micro_batch(options: Mapping[str, str]) -> MicroBatch | None:
    if _BATCH not in options:
        return None
    batch_id = WholeNumber(0).parse(_BATCH, options[_BATCH])
    return MicroBatch(options[_QUERY], batch_id, options[_RUN])
