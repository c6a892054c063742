"""Log compaction: keeps the last record of each key, like Apache Kafka's log cleaner.

Each round cleans one log. candidates.py computes the offsets of a log that may be cleaned.
key_map.py collects the last offset of each key in the dirty part. grouping.py chooses neighbouring
segments that become one. filtering.py writes each batch again, without superseded records.
cleaned_transactions.py finds the batches of aborted transactions, and old_formats.py handles
formats v0 and v1. kernel.py has the loops that numba compiles.

cleaning_round.py, chunks.py, verdicts.py, filtering.py, decompressed_runs.py, key_map.py and
kernel.py import numba, which takes long to load. Import them in a helper thread only, once a log is
to be cleaned.

May import: log, config, runtime, metrics, and klog's shared packages.
"""
