"""Kafka's record formats v0, v1 and v2, which are the same bytes on the wire and on disk.

This package may import pyspark_klog.ids, pyspark_klog.errors and the libraries for compression.
Only kernels/ imports numba, and only when a kernel (a function that numba compiles) is used. Start
reading at FORMAT.md, then layout.py, batch.py (views), builder.py and record_sets.py (batches and
messages of all formats).
"""
