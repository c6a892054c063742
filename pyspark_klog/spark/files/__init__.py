"""Finds partitions and reads ranges of offsets in segment files, without a broker (option path).

May import: client, records, storage; of spark: planning, options, offsets, errors. Needs no Spark.
Start reading at discovery.py, then segment_range.py; source/segment_reader.py is what Spark calls.
"""
