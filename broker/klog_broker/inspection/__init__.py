"""Looking into the files of a data directory without a broker: what they hold, and whether it fits.

May import: log and metadata (what they keep on disk), runtime, pyspark_klog.{storage,records,
state_records}; nothing here writes. Bytes are taken for hostile: what does not fit becomes a
`Finding`, and no length in a file decides how much memory is taken.
Start reading at lines.py, then dump.py (`klog dump-log`) and directory_checks.py (`klog verify`).
"""
