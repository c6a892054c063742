"""The data source ``klog``: Spark's entry points, which check the options."""

from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_klog.errors import KlogError
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.workers.clients import check_arrow
from pyspark_klog.spark.workers.error_display import one_line
from pyspark_klog.spark.workers.first_use import log_first_use
from pyspark_klog.spark.workers.unlimited_batches import accept_unlimited_batches

# Spark starts new Python processes to plan each query, and two for each micro-batch of a sink. Each
# method imports the modules that only its reader or writer needs, so that a process starts quickly.


class DefaultSource(DataSource):
    """``format("klog")`` of ``spark.read``, ``readStream``, and of ``write``, ``writeStream``.

    Spark makes an object of this class when a source is loaded, for each batch write and each start
    of a streaming write, and for each micro-batch of a streaming write.
    """

    @one_line
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_arrow()
        self._options = read_options(options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a source that Spark unpickles, for example in the process that plans a read, and
        let this process accept a maxRecordsPerBatch of 0 or less, which means no limit."""
        accept_unlimited_batches()
        self.__dict__.update(state)

    @classmethod
    def name(cls) -> str:
        """The name of the source, for ``format(...)``."""
        return "klog"

    @one_line
    def schema(self) -> StructType:
        """The columns of the source, which depend on the options. Spark calls this method for reads
        only."""
        self._options.check_source()
        self._options.client.warn_of_ignored(once_in_process=False)
        if self._options.table is None:
            log_first_use()
        return self._schema()

    def _schema(self) -> StructType:
        if self._options.table is not None:
            from pyspark_klog.spark.source.catalogue import table_schema

            return table_schema(self._options.table)
        from pyspark_klog.spark.source.rows import source_schema

        options = self._options
        return source_schema(include_headers=options.include_headers, columns=options.columns)

    @one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        options = self._options.for_batch()
        options.check_batch()
        from pyspark_klog.spark.source.rows import check_user_schema

        check_user_schema(schema, self._schema())
        if options.path is not None:
            from pyspark_klog.spark.source.segment_reader import SegmentReader

            return SegmentReader(options)
        if options.table is not None:
            from pyspark_klog.spark.source.catalogue import TableReader

            return TableReader(options)
        from pyspark_klog.spark.source.reader import BatchReader

        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming query.

        If an option or the schema is invalid, the reader raises the error when Spark first uses it:
        Spark would hide an error that is raised here.
        """
        from pyspark_klog.spark.source.rows import check_user_schema
        from pyspark_klog.spark.source.stream_reader import stream_reader

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
        """Return the writer of a batch write."""
        if overwrite:
            raise OptionError("save mode overwrite is not supported: use mode append")
        self._check_sink(schema)
        from pyspark_klog.spark.sink.notices import log_ignored_timestamps
        from pyspark_klog.spark.sink.options import LATER_MICRO_BATCH
        from pyspark_klog.spark.sink.writer import SinkBatchWriter

        if LATER_MICRO_BATCH not in self.options:
            self._options.client.warn_of_ignored(once_in_process=False)
            log_ignored_timestamps(self._options, schema.fieldNames())
        return SinkBatchWriter(self._options, schema.fieldNames())

    @one_line
    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002  (true in complete mode: every result is appended)
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query, for output modes append and complete."""
        self._check_sink(schema)
        from pyspark_klog.spark.sink.stream_writer import stream_writer

        return stream_writer(self._options, schema)

    def _check_sink(self, schema: StructType) -> None:
        from pyspark_klog.spark.sink.options import check_sink
        from pyspark_klog.spark.sink.schema import check_sink_schema

        check_sink(self._options, self.options)
        check_sink_schema(schema, self._options)
        log_first_use()
