"""Writing: batches in order, once, through retries, lost connections and changed leaders.

May import: client, protocol, records.
Start reading at batch_order.py (no I/O), then producer.py (its blocking driver).
"""
