"""Segment files in place of a broker (option path): what a directory has, and reads of ranges.

May import: records, storage; of spark: planning, options, offsets, errors. Needs no Spark.
Start reading at discovery.py, then range.py; source/segment_reader.py is what Spark calls.
"""
