"""Kafka's wire protocol as data: one row a field, one file an API, codecs made from the rows.

May import: pyspark_klog.ids, pyspark_klog.errors; no sockets, threads, clocks or random numbers.
Start reading at fields.py (the rows), then apis/metadata.py (an API), then codec.py (what runs).
"""
