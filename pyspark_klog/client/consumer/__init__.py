"""Reading: where a partition begins and ends, and the records between two offsets.

May import: client, protocol, records.
Start reading at fetcher.py, which gives record sets as they came; offsets.py finds offsets.
"""
