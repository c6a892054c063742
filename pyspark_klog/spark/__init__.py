"""The data source ``klog`` for Spark: batch and stream, source and sink.

May import: pyspark, client, storage, protocol, records, interpreters, errors. Only this package,
`pyspark_klog.register` and `pyspark_klog.checkpoint` import pyspark.
Start reading at data_source.py, the entry for Spark; then options, planning, source, sink.
offsets.py and the package options are pure and need no Spark.
"""

from pyspark_klog.log_fallback import install_fallback_handler

install_fallback_handler()
