"""Inspects the files of a data directory without a broker: dumps their contents and verifies them.

May import: log and metadata (the formats of their files), runtime, pyspark_klog.{errors,ids,
protocol,records,state_records,storage}. This package writes no file. File contents count as
hostile: invalid contents become a `Finding`, and a length in a file can cause only allocations
below a fixed limit. Start reading at lines.py, then dump.py (`klog dump-log`) and
directory_checks.py (`klog verify`).
"""
