"""A function for `foreachBatch` that appends each micro-batch to topics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.options import check_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BatchWriter:
    """``BatchWriter(options)(df, batch_id)``; it can be pickled, which Spark Connect needs.

    For what Spark does not let a Python sink do: output mode update, several sinks of one query.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Options as the sink takes them. Values may also be numbers, True or False; an option that
        is None counts as not given.

        :raises OptionError, SettingError: for an option that is wrong
        """
        self._options = {name: _text(v) for name, v in options.items() if v is not None}
        check_sink(read_options(self._options), self._options)

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:  # noqa: ARG002
        """Append the rows of a micro-batch; returns when they are acknowledged."""
        frame.write.format("klog").options(**self._options).mode("append").save()

    def __repr__(self) -> str:
        # Some options are secret.
        return f"batch_writer({', '.join(sorted(self._options))})"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
