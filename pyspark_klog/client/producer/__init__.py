"""Writing: batches stay in order and are not repeated, despite retries and changes of leaders.

May import: client, protocol, records.
Start reading at batch_order.py (no I/O), then producer.py (its blocking driver).
"""
