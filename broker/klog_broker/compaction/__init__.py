"""Log compaction: keeps the last record of each key, like Apache Kafka's log cleaner.

Each round cleans one log. candidates.py chooses the log and the offsets that may be cleaned.
key_map.py collects the last offset of each key in the dirty part. grouping.py chooses neighbouring
segments that become one. filtering.py writes each batch again, without superseded records.
cleaned_transactions.py finds the batches of aborted transactions, and old_formats.py handles
formats v0 and v1. kernel.py has the loops.
key_map.py, filtering.py, old_formats.py and kernel.py import numba, so import them in a helper
thread only, when there is something to clean.
May import: log, config, runtime, pyspark_klog.{records,storage}.
"""
