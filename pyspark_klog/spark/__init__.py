"""The data source ``klog`` for Spark: batch and stream, source and sink.

May import: pyspark, client, records, errors; it is the only room that imports pyspark.
Start reading at source.py; option_reader.py, options.py, offsets.py and ranges.py are pure and need
no Spark.
"""

from pyspark_klog.log_fallback import install

install()
