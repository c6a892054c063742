"""Writing: batches stay in order and are not repeated, despite retries and changes of leaders.

May import: client.cluster and the packages of client below it, protocol, records, ids, errors.
Start reading at batch_order.py (no I/O), then producer.py (its blocking driver).
"""
