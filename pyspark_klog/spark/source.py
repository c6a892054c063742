"""The data source ``klog``: what Spark finds, and where options are checked."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_klog.errors import KlogError
from pyspark_klog.spark.catalogue import TableReader, table_schema
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.failures import one_line
from pyspark_klog.spark.options import read_options
from pyspark_klog.spark.reader import BatchReader
from pyspark_klog.spark.rows import check_user_schema, source_schema
from pyspark_klog.spark.segment_files import SegmentReader
from pyspark_klog.spark.sink_options import check_sink
from pyspark_klog.spark.sink_rows import check_sink_schema
from pyspark_klog.spark.stream_reader import stream_reader
from pyspark_klog.spark.stream_writer import stream_writer
from pyspark_klog.spark.writer import BatchWriter


class DefaultSource(DataSource):
    """``spark.read.format("klog")`` and its three siblings.

    Spark makes one wherever it needs it: when a source is loaded, for each run of a sink, and for
    each micro-batch of a streaming sink.
    """

    @one_line
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = read_options(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "klog"

    @one_line
    def schema(self) -> StructType:
        """The fixed columns of the source. Spark asks for it only when it reads."""
        self._options.check_source()
        self._options.client.warn_of_ignored()
        return self._schema()

    def _schema(self) -> StructType:
        if self._options.table is not None:
            return table_schema(self._options.table)
        return source_schema(include_headers=self._options.include_headers)

    @one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch source."""
        options = self._options.for_batch()
        options.check_batch()
        check_user_schema(schema, self._schema())
        if options.path is not None:
            return SegmentReader(options)
        return BatchReader(options) if options.table is None else TableReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream source. It keeps what must be refused until it is used: see its class."""
        options = self._options.for_stream()
        refusal: KlogError | None = None
        try:
            options.check_stream()
            check_user_schema(schema, self._schema())
        except KlogError as error:
            refusal = error
        return stream_reader(options, refusal)

    @one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch sink."""
        if overwrite:
            raise OptionError("save mode overwrite is not supported: use mode append")
        check_sink(self._options, self.options)
        check_sink_schema(schema, self._options)
        self._options.client.warn_of_ignored()
        return BatchWriter(self._options)

    @one_line
    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002  (true in complete mode: every result is appended)
    ) -> DataSourceStreamWriter:
        """The stream sink, for output modes append and complete."""
        check_sink(self._options, self.options)
        check_sink_schema(schema, self._options)
        return stream_writer(self._options, schema)
