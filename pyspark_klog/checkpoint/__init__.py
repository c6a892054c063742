"""`python -m pyspark_klog checkpoint`: shows, checks and moves the offsets in the checkpoint of a
streaming query, of klog's source or of Spark's own Kafka connector.

May import: spark (its pure parts and the look-ups of offsets), client, properties, errors.
Start reading at command.py. log_files.py, operators.py and moves.py are pure.
"""
