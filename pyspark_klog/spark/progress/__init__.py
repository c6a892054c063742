"""The progress of a query: commits its position to a consumer group, and computes its lag.

May import: client; of spark: offsets.
Start reading at lag.py.
"""
