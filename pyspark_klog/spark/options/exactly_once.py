"""The options of the exactly-once sink as values. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_klog.spark.options.rows import read_option, read_optional
from pyspark_klog.spark.options.values import WholeNumber

_BATCH, _QUERY, _RUN = "klog.microbatch.id", "klog.microbatch.query", "klog.microbatch.run"


class MicroBatch(NamedTuple):
    """Identifies a micro-batch of a streaming query. ``batch_writer``, the sink for foreachBatch,
    writes each micro-batch by a batch write, and passes this value in the options of that write."""

    query_id: str
    batch_id: int
    run_id: str

    @classmethod
    def of_batch_write(cls, write_id: str) -> "MicroBatch":
        """The identity of a batch write outside any streaming query. Each batch write has a
        ``write_id`` of its own, even if the user writes the same rows again."""
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
    """The sink records what it has committed in progress rows: offsets that the consumer groups of
    its tasks commit for partition 0 of this topic. The check of a sink's options (`check_sink`)
    refuses None."""
    keep_on_mismatch: bool = False
    """Whether a task that Spark runs again keeps the rows that an earlier attempt committed,
    although the rows of the new attempt differ; their number must be the same."""
    continue_on_missing: bool = False
    """Whether a query goes on if tasks have no progress rows (committed offsets that say what was
    written). Brokers may have deleted old rows: then the query may write a micro-batch twice."""
    query: str | None = None
    """A name in place of the query's id, for ``batch_writer`` under Spark Connect, which does not
    give the id; None to use the query's id."""
    micro_batch: MicroBatch | None = None
    """The micro-batch that ``batch_writer``, the sink for foreachBatch, writes by a batch write.
    The writer of any other batch write sets it to `MicroBatch.of_batch_write`; None in a stream."""


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
