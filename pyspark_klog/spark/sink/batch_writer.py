"""A function for `foreachBatch` that appends each micro-batch to topics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.active_session import set_active_session
from pyspark_klog.spark.sink.options import LATER_MICRO_BATCH, check_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BatchWriter:
    """``BatchWriter(options)(df, batch_id)``; it can be pickled, which Spark Connect needs.

    For uses that Spark denies to a Python sink: output mode update, several sinks of one query.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """``options`` are those of the sink. Values may also be numbers, True or False; an option
        that is None counts as not given.

        :raises OptionError, OffsetError, SettingError: for an option that is wrong
        """
        self._options = {name: _text(v) for name, v in options.items() if v is not None}
        read = read_options(self._options)
        check_sink(read, self._options, is_batch_writer=True)
        # Warn once of settings without effect, then leave them out: each micro-batch is a separate
        # write, which would warn again.
        read.client.warn_of_ignored(once_in_process=False)
        ignored = read.client.ignored_names
        self._options = {n: v for n, v in self._options.items() if n.lower() not in ignored}
        self._exactly_once = read.exactly_once
        self._has_written = False

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Append the rows of a micro-batch; returns when they are acknowledged (acks=0: sent).

        In a thread without an active Spark session the frame's session becomes the active one.

        :raises OptionError: for exactlyOnce, if the query cannot be identified
        """
        set_active_session(frame.sparkSession, replace=False)
        options = self._options
        if self._exactly_once is not None:
            from pyspark_klog.spark.sink.exactly_once.micro_batches import micro_batch_of

            micro_batch = micro_batch_of(self._exactly_once, frame, batch_id)
            options = options | micro_batch.as_options()
        frame = _with_distinct_names(frame)
        if self._has_written:
            options = options | {LATER_MICRO_BATCH: "true"}
        frame.write.format("klog").options(**options).mode("append").save()
        self._has_written = True

    def __repr__(self) -> str:
        # Show only the names of options, because some values are secret.
        return f"batch_writer({', '.join(sorted(self._options))})"


def _with_distinct_names(frame: "DataFrame") -> "DataFrame":
    """The frame with distinct column names: of columns with the same name the later ones get names
    that the sink ignores, because only Spark 4.0 passes rows with equal names to a Python sink."""
    names = frame.columns
    if len(set(names)) == len(names):
        return frame
    seen = [name if name not in names[:n] else f"klog.ignored.{n}" for n, name in enumerate(names)]
    return frame.toDF(*seen)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
