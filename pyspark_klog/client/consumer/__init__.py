"""Reading: finds the offsets of partitions, and fetches the records between two offsets.

May import: client.cluster and the packages of client below it, protocol, records, ids, errors.
Start reading at fetcher.py, which returns record sets as brokers sent them; offsets.py finds
offsets.
"""
