"""Topics as tables of a lake: a writer copies a topic's committed records into Parquet files of an
Iceberg or Delta table, each record exactly once.

A table's *border* is the next offset to copy of each partition. The writer reads the border from
the table, copies the records from there on, and commits the new files together with the new border,
on condition that no one has committed since the border was read.

Start reading at table.py. May import: pyspark_klog.client and the packages below it. pyiceberg and
deltalake are imported only by iceberg.py and delta.py, when a table of their format is opened.
"""
