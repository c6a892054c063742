"""The metadata of the cluster (topics, partitions, settings, brokers, producer ids) and its store.

May import: runtime, config, pyspark_klog.{ids,errors,records.checksums,storage}; no network.
Start reading at interface.py (the contract of a store), then image.py (the metadata that clients
see) and role_changes.py (the roles of a broker's replicas), then local.py with changes.py,
election.py and local_file.py.
"""
