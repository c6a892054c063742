"""The log engine: segments, indexes, validation, producer state, recovery, retention, durability.

May import: klog_broker.{runtime,config} and pyspark_klog.{records,storage,ids,errors}.
Start reading at partition_log.py (one partition), then log_manager.py (all of them).
"""
