"""Topics, ids, partitions, settings, brokers and producer ids, and where they are kept.

May import: runtime, config, pyspark_klog.{ids,errors,records.checksums}; no socket, no handler.
Start reading at interface.py (what a store promises), then image.py (what clients are told) and
orders.py (what replicas are told), then local.py with changes.py, election.py and local_file.py.
"""
