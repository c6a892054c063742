"""The data source ``klog`` for Spark: batch and stream, source and sink.

May import: pyspark, client, records, errors; it is the only room that imports pyspark.
Start reading at data_source.py, which is what Spark finds; then options, planning, source, sink.
offsets.py and all of options are pure and need no Spark.
"""

from pyspark_klog.log_fallback import install

install()
