"""What a partition's log looks like on disk: names, layouts, and read-only views for any reader.

May import: pyspark_klog.{records,ids,errors}; no sockets, no threads, and it writes nothing.
Start reading at FORMAT.md, then names.py, indexes.py, producer_snapshot.py and text_files.py.
"""
