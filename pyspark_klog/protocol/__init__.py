"""Kafka's wire protocol as declarations: one row per field, one module per API.

Codecs are generated from the rows. This package may import pyspark_klog.ids and
pyspark_klog.errors, but no sockets, threads, clocks or random numbers. Start reading at fields.py
(the rows), then apis/metadata.py (an API), then codec.py (encoding and decoding).
"""
