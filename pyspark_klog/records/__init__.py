"""Kafka's record formats v0, v1 and v2, which are the same bytes on the wire and on disk.

This package may import no other modules of klog than pyspark_klog.ids and pyspark_klog.errors. Only
kernels/ imports numba, when a module with kernels (functions that numba compiles) is imported.
Start reading at FORMAT.md, then layout.py, batch.py (views), builder.py and record_sets.py (batches
and messages of all formats).
"""
