"""Transactions: records and a group's offsets that become visible together, or not at all.

May import: client, client.producer, protocol.
Start reading at states.py and outcomes.py (tables), then manager.py (no I/O), then producer.py (its
blocking driver).
"""
