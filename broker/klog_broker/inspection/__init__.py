"""Inspects the files of a data directory without a broker: dumps their contents and verifies them.

May import: log and metadata (the formats of their files), runtime, pyspark_klog.{storage,records,
state_records}. This package writes no file. File contents count as hostile: invalid contents become
a `Finding`, and no length in a file decides how much memory is allocated. Start reading at
lines.py, then dump.py (`klog dump-log`) and directory_checks.py (`klog verify`).
"""
