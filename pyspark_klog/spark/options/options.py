"""The options of one read or write as values, with the checks for sources, batches and streams.

`reader.py` reads the options before Spark says whether they are for a source or a sink, a batch or
a stream. `Options.check_batch`, `check_stream` and `check_source` check them afterwards.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, as_json
from pyspark_klog.spark.options.bounds import AtCommitted, Bound, ByTopic, can_move, option_of
from pyspark_klog.spark.options.exactly_once import ExactlyOnce
from pyspark_klog.spark.options.paths import local_directory
from pyspark_klog.spark.options.rows import REFUSED_BY_SOURCE

_log = logging.getLogger(__name__)

STRATEGIES = ("assign", "subscribe", "subscribePattern")
"""The options that name the topics or partitions to read; a read of records needs exactly one."""


@dataclass(frozen=True)
class Options:
    """The options of one read or write as values. `for_batch` and `for_stream` set the defaults of
    start and end."""

    client: ClientSettings
    assigned: frozenset[TopicPartition] | None
    topics: tuple[str, ...]
    topic_pattern: str | None
    """The value of option subscribePattern, a pattern in Java's syntax, which `compile_java`
    translates to Python's."""
    starting: Bound | None
    latest_without_match: bool
    """Whether a partition without a record at or after its starting timestamp is read from its end;
    otherwise the query fails."""
    ending: Bound | None
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    max_offsets_by_topic: Mapping[str, int]
    lag_details: bool
    """Whether a stream's progress has the age of the first unread record of each partition."""
    limits: tuple[str, ...]
    """The given options that only a stream on Spark 4.2 or later can apply."""
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    columns: tuple[str, ...] | None
    """The only columns to read, in the order in which the user named them and the rows have them;
    None for all columns."""
    keys: frozenset[bytes] | None
    """The only keys whose records a batch reads; None for all."""
    one_sided: tuple[str, ...]
    """The given Kafka settings that sources refuse or that sinks refuse."""
    poll_timeout_ms: int
    offset_attempts: int
    offset_retry_interval_ms: int
    idle_wait_ms: int
    allow_slow: bool
    commit_group_id: str | None
    """The consumer group for which a stream commits its position, and at whose offsets a read with
    startingOffsets=committed begins."""
    committed_offsets_missing: str
    topic: str | None
    """The sink's topic."""
    timestamp_column: str | None
    """The column with the records' timestamps; with None records get the time of writing."""
    table: str | None
    """The table of facts about the cluster to read in place of records, one of `rows.TABLES`; None
    to read records."""
    dead_letter_topic: str | None
    dead_letter_max: int | None
    exactly_once: ExactlyOnce | None
    """The exactly-once options; with None the sink writes without transactions."""
    path: str | None
    """A broker's data directory to read instead of asking brokers, as the user wrote it, until
    `SegmentReader` makes it an absolute path."""
    stopped: bool
    """Whether, according to the user, no broker runs on ``path``."""

    @property
    def read_committed(self) -> bool:
        """Whether only committed records are read."""
        return self.client["isolation.level"] == "read_committed"

    @property
    def start_can_move(self) -> bool:
        """Whether the option for the start could mean other offsets if it were resolved again
        later, as ``latest`` does."""
        assert self.starting is not None
        return can_move(self.starting, latest_without_match=self.latest_without_match)

    def check_side(self, refused: Mapping[str, str]) -> None:
        """Refuse the options ``kafka.NAME`` whose NAME is a key of ``refused``, which has advice
        for each such option.

        :raises OptionError: with the advice, for the first such option that the user gave
        """
        for name in self.one_sided:
            if name in refused:
                raise OptionError(f"option kafka.{name} is not supported: {refused[name]}")

    def check_source(self) -> None:
        """Check the options of a source.

        :raises OptionError: if no option names topics or a table, for a setting that sources
            refuse, for a path that cannot be local, or for option stopped without path
        """
        self.check_side(REFUSED_BY_SOURCE)
        named = self.topics or self.assigned is not None or self.topic_pattern is not None
        if not named and self.table is None:
            given = " (option topic is for writing)" if self.topic is not None else ""
            raise OptionError(
                f"none of the options {', '.join(STRATEGIES)} is given{given}; expected one, "
                "as in option('subscribe', 'topicA,topicB')"
            )
        if self.path is not None:
            local_directory(self.path)
        elif self.stopped:
            raise OptionError("option stopped counts only together with path: leave it out")

    def check_stream(self) -> None:
        """Check the options of a stream source.

        :raises OptionError: for an option that a stream cannot have
        """
        if self.path is not None:
            raise OptionError(
                f"a path is given, {self.path!r}; a stream reads topics from brokers, and only a "
                "batch reads files: leave out path and use option subscribe"
            )
        self.check_source()
        if self.table is not None:
            raise OptionError("option table is for batches: use spark.read, not readStream")
        if self.keys is not None:
            raise OptionError(
                "option keys is for batches: a key moves to another partition when partitions are "
                "added, and a stream would miss its records; leave out keys and filter the stream"
            )
        if self.ending is not None:
            name = option_of(self.ending, "ending")
            raise OptionError(f"{name} is not for streams, which have no end: leave it out")

    def check_batch(self) -> None:
        """Check the options of a batch source.

        :raises OptionError: for an option that a batch cannot have
        """
        self.check_source()
        if self.starting == LATEST:
            raise OptionError(
                "startingOffsets is latest; a batch cannot begin at the end: expected earliest, "
                "or offsets"
            )
        if isinstance(self.starting, dict) and LATEST in self.starting.values():
            raise OptionError(
                "startingOffsets has -1 (latest); a batch cannot begin at the end: expected -2 "
                f"(earliest) or offsets in {as_json(self.starting)}"
            )
        if isinstance(self.starting, ByTopic) and LATEST in self.starting.topics.values():
            raise OptionError(
                "startingOffsets has latest; a batch cannot begin at the end: expected earliest, "
                "or offsets"
            )
        for name in self.limits:
            _log.warning("option=%s has no effect in a batch", name)
        if self.commit_group_id is not None and not isinstance(self.starting, AtCommitted):
            _log.warning("option=commitGroupId has no effect in a batch: it commits no position")

    def for_stream(self) -> "Options":
        """These options with a stream's default start, ``latest``."""
        return replace(self, starting=LATEST) if self.starting is None else self

    def for_batch(self) -> "Options":
        """These options with a batch's defaults, from ``earliest`` to ``latest``."""
        return replace(
            self,
            starting=EARLIEST if self.starting is None else self.starting,
            ending=LATEST if self.ending is None else self.ending,
        )
