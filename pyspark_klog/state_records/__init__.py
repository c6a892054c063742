"""Keys and values of the records in __consumer_offsets and __transaction_state, as in Kafka.

This package may import protocol (whose classes for messages and fields declare the records'
formats), records, errors and ids, but never client or spark. Start reading at offset_commit.py and
group_metadata.py, then consumer_offsets.py; transaction_log.py has the records of transactions.
"""
