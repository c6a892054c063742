"""Chooses the offsets that a batch or a micro-batch reads, and the number of tasks.

May import: client, protocol, records; of spark: options, workers, offsets, errors.
Start reading at ranges.py, then discovery.py, which asks brokers.
"""
