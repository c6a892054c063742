"""A reader of a table beside a writer: border and files are those of one version."""

from concurrent.futures import Future
from threading import Thread

import pyarrow as pa

from pyspark_klog.lake_tables.border import Origin
from pyspark_klog.lake_tables.data_files import new_file_name
from pyspark_klog.lake_tables.parquet_file import Compression, ParquetFile
from pyspark_klog.lake_tables.table import LakeTable
from tests.support.lake import Lake

_TOPIC = "beside"
_COMMITS = 100
_ORIGIN = Origin("cluster", _TOPIC, "topic-id")


def _append_row(table: LakeTable, offset: int) -> None:
    """Commit a file with one row, and the border after the row."""
    table.load()
    with ParquetFile(table, new_file_name(0, offset), Compression()) as file:
        row = [None, b"v", _TOPIC, 0, offset, 0, 0, None]
        columns = [pa.array([v], field.type) for v, field in zip(row, table.schema, strict=True)]
        file.write(pa.RecordBatch.from_arrays(columns, schema=table.schema))
        table.commit([file.finish()], {0: offset + 1})


def test_the_border_is_that_of_the_files(lake: Lake, kind: str) -> None:
    lake.table(kind, _TOPIC).create(_ORIGIN, {0: 0})
    done: Future[None] = Future()

    def write() -> None:
        try:
            table = lake.table(kind, _TOPIC)
            for offset in range(_COMMITS):
                _append_row(table, offset)
            done.set_result(None)
        except Exception as error:
            done.set_exception(error)

    writer = Thread(target=write)
    writer.start()
    seen = set()
    table = lake.table(kind, _TOPIC)
    while not done.done() or _COMMITS not in seen:
        head = table.load()
        assert head is not None
        assert head.border[0] == sum(file.records for file in table.files())
        seen.add(head.border[0])
        if done.done():
            done.result()
    writer.join()
    assert len(seen) > 5
