"""Segment files in place of brokers (option path): finds partitions, and reads ranges of offsets.

May import: records, storage; of spark: planning, options, offsets, errors. Needs no Spark.
Start reading at discovery.py, then range.py; source/segment_reader.py is what Spark calls.
"""
