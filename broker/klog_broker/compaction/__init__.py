"""Log compaction: of records with the same key a log keeps the last, as Apache Kafka's cleaner.

One round over one log: candidates.py picks the log and says what may be cleaned, key_map.py takes
the last offset of each key from what is dirty, grouping.py puts segments together, and filtering.py
writes each batch anew without the records that are superseded; transactions.py says which batches
belong to aborted transactions, old_formats.py does what came before v2. kernel.py has the loops.
key_map.py, filtering.py, old_formats.py and kernel.py import numba: whoever uses them imports them
in a helper thread, when there is something to do.
May import: log, config, runtime, pyspark_klog.{records,storage}.
"""
