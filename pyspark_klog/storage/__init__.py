"""The on-disk format of a partition's log: file names, layouts, and read-only views of the files.

May import: pyspark_klog.{records,ids,errors}. The package opens no sockets, starts no threads and
writes no files.
Start reading at FORMAT.md, then names.py, indexes.py, producer_snapshot.py and text_files.py.
"""
