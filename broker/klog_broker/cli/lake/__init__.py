"""The commands of `klog lake`: copy topics into tables of a lake, and look after the tables.

Start reading at lake.py. May import: cli.common, cli.records (start offsets), monitoring.text and
pyspark_klog.lake_tables.
"""
