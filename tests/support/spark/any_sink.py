"""The format ``any_sink``: a Python sink that takes whatever Spark gives, and checks nothing."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class _BatchRows(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _StreamRows(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class AnySink(DataSource):
    """Batch and stream, row by row."""

    @classmethod
    def name(cls) -> str:
        return "any_sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _BatchRows()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return _StreamRows()
