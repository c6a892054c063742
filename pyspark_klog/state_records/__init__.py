"""Keys and values of __consumer_offsets and __transaction_state, as Kafka writes them.

May import: protocol (whose rows declare the records), errors, ids; never client or spark.
Start reading at offset_commit.py and group_metadata.py, then consumer_offsets.py; transactions are
in transaction_log.py.
"""
