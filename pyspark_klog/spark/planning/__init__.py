"""Which offsets a batch or a micro-batch reads, and in how many tasks.

May import: client, protocol, records; of spark: options, workers, offsets, errors.
Start reading at ranges.py, then discovery.py, the one that asks brokers.
"""
