"""The source: Spark's entry points to plan and read a batch or a stream, and the rows' columns.

May import: client, records; of spark: all but sink, data_source and registration.
Start reading at reader.py and rows.py, then stream_base.py and stream_reader.py.
"""
