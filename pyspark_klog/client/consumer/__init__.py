"""Reading: finds the offsets of partitions, and fetches the records between two offsets.

May import: client, protocol, records.
Start reading at fetcher.py, which returns record sets as brokers sent them; offsets.py finds
offsets.
"""
