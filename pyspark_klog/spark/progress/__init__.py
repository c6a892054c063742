"""The progress of a query: its position as a consumer group, and its lag.

May import: client; of spark: offsets.
Start reading at lag.py.
"""
