"""The options of the exactly-once sink as values. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.values import LONG_MAX, read_choice, read_flag, read_number

DEFAULT_PREFIX = "klog-sink"
DEFAULT_NAME = "sink"

_PART = re.compile(r"[A-Za-z0-9_-]{1,100}")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,100}")

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
        """The micro-batch as options of the batch write; users never set these."""
        return {_QUERY: self.query_id, _BATCH: str(self.batch_id), _RUN: self.run_id}


class ExactlyOnce(NamedTuple):
    """The values of option exactlyOnce and its related options."""

    prefix: str = DEFAULT_PREFIX
    name: str = DEFAULT_NAME
    topic: str | None = None
    """The topic whose partition 0 the progress rows name; None only before `check_sink`."""
    keep_on_mismatch: bool = False
    """Whether a repeated task whose rows differ from its committed rows keeps the latter."""
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
    mismatch = read_choice(options, "exactlyOnceMismatch", "fail", "keep")
    missing = read_choice(options, "exactlyOnceMissing", "fail", "continue")
    found = ExactlyOnce(
        prefix=_read_part(options, "exactlyOncePrefix", _PREFIX) or DEFAULT_PREFIX,
        name=_read_part(options, "exactlyOnceName", _PART) or DEFAULT_NAME,
        topic=_read_topic(options),
        keep_on_mismatch=mismatch == "keep",
        continue_on_missing=missing == "continue",
        query=_read_part(options, "exactlyOnceQuery", _PART),
        micro_batch=_read_micro_batch(options),
    )
    return found if read_flag(options, "exactlyOnce", False) else None


def _read_part(options: Mapping[str, str], name: str, form: re.Pattern[str]) -> str | None:
    """An option whose value becomes a part of transactional ids; None if it is not given."""
    text = options.get(name.lower())
    if text is None:
        return None
    if form.fullmatch(text.strip()) is None:
        dot = ", '.'" if form is _PREFIX else ""
        raise OptionError(
            f"option {name} is {text!r}; expected 1 to 100 letters of a to z, A to Z, digits, '_' "
            f"and '-'{dot}: it becomes a part of transactional ids"
        )
    return text.strip()


def _read_topic(options: Mapping[str, str]) -> str | None:
    for name in ("exactlyOnceTopic", "topic"):
        topic = options.get(name.lower())
        if topic is not None:
            if not topic.strip():
                raise OptionError(f"option {name} is empty; expected the name of a topic")
            return topic.strip()
    return None


def _read_micro_batch(options: Mapping[str, str]) -> MicroBatch | None:
    batch_id = read_number(options, _BATCH, 0, LONG_MAX)
    if batch_id is None:
        return None
    return MicroBatch(options[_QUERY], batch_id, options[_RUN])
