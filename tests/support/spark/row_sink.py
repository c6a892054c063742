"""The format ``klog_rows``: klog's sink as Spark 4.0 runs it, row by row, on any release."""

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyspark_klog.spark.data_source import DefaultSource
from pyspark_klog.spark.sink.stream_writer import RowStreamWriter


class RowSink(DefaultSource):
    """A DefaultSource whose streams are written by a RowStreamWriter."""

    @classmethod
    def name(cls) -> str:
        return "klog_rows"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        super().streamWriter(schema, overwrite)
        return RowStreamWriter(self._options, schema)
