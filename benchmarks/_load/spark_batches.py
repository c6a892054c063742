"""``python -m benchmarks._load.spark_batches SERVERS FROM TO COUNT``: many micro-batches, no Spark.

One process does the work of a Python worker and of the stream's source process for each
micro-batch: plan it, read each range, write the rows, collect garbage. The process prints its
resident memory as one line of JSON.
"""

import gc
import json
import os
import pickle
import sys

from pyspark.sql.streaming.datasource import ReadMaxRows

from benchmarks._load.spark_jobs import MICRO_RECORDS
from benchmarks._processes import resident_bytes
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.sink.dead_letters import TaskIds
from pyspark_klog.spark.sink.row_writer import SinkRows
from pyspark_klog.spark.source.stream_reader import LimitedStreamReader

_SETTLED = 0.2
"""The share of the micro-batches after which memory is first measured."""


def run(servers: str, topic: str, to: str, count: int) -> dict[str, int]:
    """Read ``count`` micro-batches of a topic that has as many, and write them to another."""
    where = {"kafka.bootstrap.servers": servers}
    source = {"subscribe": topic, "startingOffsets": "earliest", "idleWaitMs": "0"}
    reader = LimitedStreamReader(read_options(where | source).for_stream(), None)
    sink = read_options(where | {"topic": to})
    records = early_bytes = 0
    at = reader.initialOffset()
    for number in range(count):
        end = reader.latestOffset(at, ReadMaxRows(MICRO_RECORDS))
        reader.reportLatestOffset()
        for partition in reader.partitions(at, end):
            # Each task gets a copy of the reader and of its partition.
            copy, given = pickle.loads(pickle.dumps((reader, partition)))
            batches = list(copy.read(given))
            records += sum(batch.num_rows for batch in batches)
            SinkRows(sink, TaskIds()).write(b.select(["key", "value"]) for b in batches)
            del batches
            gc.collect()
        reader.commit(at)
        at = end
        if number == int(count * _SETTLED):
            early_bytes = resident_bytes(os.getpid())
    late_bytes = resident_bytes(os.getpid())
    reader.stop()
    return {"records": records, "early_bytes": early_bytes, "late_bytes": late_bytes}


if __name__ == "__main__":
    _servers, _topic, _to, _count = sys.argv[1:]
    print(json.dumps(run(_servers, _topic, _to, int(_count))))
