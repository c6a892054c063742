"""The log engine: segments, indexes, validation, producer state, recovery, retention, durability.

Start reading at partition_log.py (one partition), then append/ and manager/log_manager.py (all
partitions of a broker). May import: klog_broker.{runtime,metrics} and
pyspark_klog.{records,storage,ids,errors}.
"""
